module openrlhf.cli.train_rm -load_in_4bit
module openrlhf.cli.train_rm 