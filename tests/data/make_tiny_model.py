#!/usr/bin/env python3
"""Makes examples/tiny_model: a language model of 16 320 parameters over bytes, trained for half a minute on the
default job's text, as a Hugging Face folder with a byte-level tokenizer and a chat template.

Needs transformers (5.24.0), torch (2.15.0) and tokenizers (0.23.3). Run from the root. The weights differ from
machine to machine; tests name the numbers of those that are checked in.
"""
import pathlib

import tokenizers as tk
import torch
import transformers as t
from tokenizers import decoders, models, pre_tokenizers

ROOT = pathlib.Path(__file__).parent.parent.parent
OUT = ROOT / "examples/tiny_model"
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + "
            "'<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")


def tokenizer():
    words = SPECIAL + sorted(pre_tokenizers.ByteLevel.alphabet())
    tok = tk.Tokenizer(models.BPE(vocab={word: i for i, word in enumerate(words)}, merges=[]))
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    fast = t.PreTrainedTokenizerFast(tokenizer_object=tok, bos_token=SPECIAL[0], eos_token=SPECIAL[2],
                                     additional_special_tokens=SPECIAL[1:2])
    fast.chat_template = TEMPLATE
    return fast


def main():
    torch.manual_seed(0)
    tok = tokenizer()
    config = t.LlamaConfig(
        vocab_size=len(tok), hidden_size=24, intermediate_size=48, num_hidden_layers=2, num_attention_heads=3,
        num_key_value_heads=1, max_position_embeddings=512, tie_word_embeddings=True, bos_token_id=0, eos_token_id=2)
    model = t.LlamaForCausalLM(config)
    ids = torch.tensor(tok((ROOT / "data/corpus.txt").read_text()[:400_000]).input_ids)
    steps = 1500
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=steps)
    for step in range(steps):
        at = torch.randint(0, len(ids) - 65, (16,))
        batch = torch.stack([ids[i:i + 64] for i in at])
        loss = model(batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            print(step, float(loss), flush=True)
    model.save_pretrained(OUT)
    tok.save_pretrained(OUT)
    prompt = tok("The ", return_tensors="pt").input_ids
    print(repr(tok.decode(model.generate(prompt, max_new_tokens=60, do_sample=False)[0])))


if __name__ == "__main__":
    main()
