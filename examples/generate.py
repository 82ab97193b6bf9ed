"""Continue a text with a model directory, by plain transformers and nothing of Trainyard.

python -m examples.generate --model DIR --prompt 'def f(x):'
"""

import argparse

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils.logging import disable_progress_bar


def main() -> None:
    """Print the prompt and its continuation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a directory that save_pretrained wrote")
    parser.add_argument("--prompt", required=True)
    parser.add_argument("--max-new-tokens", type=int, default=48)
    arguments = parser.parse_args()
    disable_progress_bar()
    print(generate(arguments.model, arguments.prompt, arguments.max_new_tokens))


def generate(directory: str, prompt: str, max_new_tokens: int) -> str:
    """The most likely continuation, word by word; the same each time."""
    tokenizer = AutoTokenizer.from_pretrained(directory)
    model = AutoModelForCausalLM.from_pretrained(directory).eval()
    inputs = tokenizer(prompt, return_tensors="pt", return_token_type_ids=False)
    with torch.no_grad():
        tokens = model.generate(**inputs, max_new_tokens=max_new_tokens, do_sample=False)
    return str(tokenizer.decode(tokens[0], skip_special_tokens=True))


if __name__ == "__main__":
    main()
