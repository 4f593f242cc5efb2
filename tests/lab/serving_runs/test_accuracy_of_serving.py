"""The tables of the page on the accuracy of serving are those of its command; quick ones are compared."""

from serving_accuracy import LINES, PAGE, table_of

QUICK = (
    "serving/vllm_requests_RTXPRO6000_Llama-3.1-8B.csv",
    "serving/vllm_requests_RTXPRO6000_Qwen3-32B.csv",
)


def test_the_page_is_what_its_command_prints(shared):
    page = PAGE.read_text(encoding="utf-8")

    for path in QUICK:
        assert table_of(path, [line for line in LINES if line[0] == path]) in page, (
            "python tests/serving_accuracy.py writes it"
        )
