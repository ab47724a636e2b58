"""Writes `tokenizer.json`: a byte-level BPE of 320 tokens, made of the text in `examples/data` by the `tokenizers` library."""

from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

here = Path(__file__).parent
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
alphabet = pre_tokenizers.ByteLevel.alphabet()
trainer = trainers.BpeTrainer(vocab_size=320, initial_alphabet=alphabet, show_progress=False)
tokenizer.train([str(here / "../../../examples/data/shakespeare.txt")], trainer)
tokenizer.save(str(here / "tokenizer.json"), pretty=False)
