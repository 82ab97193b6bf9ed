"""Mean vectors by sentence-transformers for `benchmarks.inference`, in an interpreter that has it and not ours.

    PYTHON benchmarks/sentence_vectors.py MODEL MOST_TOKENS

Each line of standard input is a list of texts in JSON; the answer is a line with the processor seconds they took.
"""

import json
import sys
import time

import torch
from sentence_transformers import SentenceTransformer, models  # type: ignore[import-not-found]  # not in our environment


def main(model: str, most_tokens: int) -> None:
    torch.set_num_threads(1)  # as the engine
    words = models.Transformer(model, max_seq_length=most_tokens)
    if words.tokenizer.pad_token is None:
        words.tokenizer.pad_token = words.tokenizer.eos_token
    pooling = models.Pooling(words.get_word_embedding_dimension(), pooling_mode="mean")
    encoder = SentenceTransformer(modules=[words, pooling], device="cpu")
    for line in sys.stdin:
        texts = json.loads(line)
        begun = time.process_time()
        encoder.encode(texts, batch_size=len(texts), show_progress_bar=False)
        print(time.process_time() - begun, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
