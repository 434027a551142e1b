#!/usr/bin/env python3
"""Makes tests/data/tokenizers: small tokenizers of every kind that is read, and what Hugging Face's tokenizers
makes of texts.

Characters are those of Unicode 12: the normal forms of tokenizers know no newer ones.
Needs tokenizers (0.23.3). Run from the root.
"""
import json
import pathlib
import random

import tokenizers as t
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

ROOT = pathlib.Path(__file__).parent
OUT = ROOT / "tokenizers"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = LLAMA3.replace("{1,3}", "")
SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]


def corpus():
    text = (ROOT.parent.parent / "data/corpus.txt").read_text()[:300_000]
    extra = " é è ü ñ 漢字 かな кириллица ελληνικά 12345 3.14 foo_bar() don't I'LL we've\n\n\t x\r\n 😀 "
    return [text, extra * 200]


def byte_level(pre, normalizer=None, post=None, vocab=600, **model):
    tok = t.Tokenizer(models.BPE(**model))
    tok.pre_tokenizer = pre
    if normalizer:
        tok.normalizer = normalizer
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=vocab, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
        special_tokens=SPECIAL))
    if post:
        tok.post_processor = post
    return tok


def sentencepiece(normalizer, pre, decoder, **model):
    tok = t.Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True, **model))
    tok.normalizer = normalizer
    if pre:
        tok.pre_tokenizer = pre
    # Words are learnt as Metaspace cuts them; the finished tokenizer has its own steps.
    learner = t.Tokenizer(models.BPE(unk_token="<unk>"))
    learner.pre_tokenizer = pre_tokenizers.Metaspace()
    learner.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=700, show_progress=False, limit_alphabet=90,
        special_tokens=["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]))
    model = json.loads(learner.to_str())["model"]
    j = json.loads(tok.to_str())
    j["model"].update(vocab=model["vocab"], merges=model["merges"])
    tok = t.Tokenizer.from_str(json.dumps(j))
    tok.decoder = decoder
    tok.add_special_tokens([t.AddedToken(s, special=True, normalized=False) for s in ("<unk>", "<s>", "</s>")])
    tok.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B",
                                                      special_tokens=[("<s>", tok.token_to_id("<s>"))])
    return tok


def split(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(t.Regex(pattern), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def all_tokenizers():
    gpt2 = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False))
    prefix = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True))
    llama3 = byte_level(split(LLAMA3), ignore_merges=True)
    llama3.post_processor = processors.Sequence([processors.ByteLevel(), processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B", special_tokens=[("<s>", 0), ("</s>", 1)])])
    qwen = byte_level(split(QWEN), normalizer=normalizers.NFC())
    digits = byte_level(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                 pre_tokenizers.ByteLevel(add_prefix_space=False)]))
    added = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), normalizer=normalizers.NFC())
    added.add_tokens([t.AddedToken("left", lstrip=True, normalized=False),
                      t.AddedToken("right", rstrip=True, normalized=False),
                      t.AddedToken("word", single_word=True, normalized=False),
                      t.AddedToken("both", lstrip=True, rstrip=True, single_word=True, normalized=True),
                      t.AddedToken("e\u0301t", normalized=True), t.AddedToken("<|im", normalized=False)])
    llama2 = sentencepiece(
        normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]), None,
        decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                           decoders.Strip(" ", 1, 0)]))
    metaspace = sentencepiece(
        normalizers.NFKC(), pre_tokenizers.Metaspace(prepend_scheme="first", split=True),
        decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="first"), decoders.Fuse()]))
    return dict(gpt2=gpt2, prefix=prefix, llama3=llama3, qwen=qwen, digits=digits, added=added, llama2=llama2,
                metaspace=metaspace)


def texts():
    r = random.Random(7)
    fixed = ["", " ", "   ", "Hello, world!", "don't I'LL we'VE 'S", "a\n\n b\r\n\r\n  c\t\td ", "1234567 3.14",
             "e\u0301te\u0301 \u00e9t\u00e9 \u2126 \ufb01", "\u6f22\u5b57 \u304b\u306a", "\U0001f600\u200d\U0001f525x",
             "<s>hi</s> <|im_start|>user\n<|im_end|>", "<|im x", "a left b  left right   c right",
             "word words sword word, _word", "x both y both", "  both  ", "\u2581\u2581a \u2581", "<0x41><unk>",
             "\U0001e4d0\U0001e4db's", "\u0085\u180e\u00a0x", "a" * 60, "ab" * 50 + " " * 40, "\x00\x01\x7f"]
    kinds = [lambda: chr(r.randrange(32, 127)), lambda: r.choice(" \n\t\r\u00a0\u3000"),
             lambda: chr(r.randrange(0xA0, 0x2FF)), lambda: chr(r.choice([0x301, 0x308, 0x200D, 0xFE0F])),
             lambda: chr(r.randrange(0x400, 0x600)), lambda: chr(r.randrange(0x4E00, 0x9FA5)),
             lambda: chr(r.randrange(0x1F300, 0x1F64F)),
             lambda: r.choice(["'s", "'LL", "  ", "123", "<|", " left ", "word", "</s>", "the "])]
    return fixed + ["".join(r.choice(kinds)() for _ in range(r.randrange(1, 30))) for _ in range(80)]


def main():
    OUT.mkdir(exist_ok=True)
    cases = {}
    for name, tok in all_tokenizers().items():
        (OUT / f"{name}.json").write_text(json.dumps(json.loads(tok.to_str()), ensure_ascii=False) + "\n")
        rows = []
        for text in texts():
            ids = tok.encode(text).ids
            rows.append({"text": text, "ids": ids, "plain": tok.encode(text, add_special_tokens=False).ids,
                         "decoded": tok.decode(ids, skip_special_tokens=False),
                         "without_special": tok.decode(ids, skip_special_tokens=True)})
        cases[name] = rows
    (OUT / "cases.txt").write_text("".join(json.dumps({"tokenizer": n, **row}) + "\n"
                                            for n, rows in cases.items() for row in rows))


if __name__ == "__main__":
    main()
