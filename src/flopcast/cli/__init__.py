"""The command line: one file for each command.

main.py collects the commands and maps errors to exit codes. options.py has the options that describe a job,
which several commands share, and progress.py the line of progress. A command builds a request, calls the
function that Python users call, and prints the result as render/ formats it.
"""
