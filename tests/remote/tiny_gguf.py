"""Write a tiny GGUF model; run by the python of a release, which has gguf and numpy.

    tiny_gguf.py FILE.gguf

A llama of one layer with random weights in Q4_1, and a byte-level tokenizer. Prints, as JSON, what
a right conversion must find: the sum of what each quantised tensor stands for.
"""

# mypy: ignore-errors

import json
import sys

import gguf
import numpy

HIDDEN, FEED, HEADS, VOCAB = 64, 96, 2, 288
SHAPES = {
    "token_embd.weight": (VOCAB, HIDDEN),
    "blk.0.attn_v.weight": (HIDDEN, HIDDEN),
    "blk.0.attn_q.weight": (HIDDEN, HIDDEN),
    "blk.0.attn_k.weight": (HIDDEN, HIDDEN),
    "blk.0.attn_output.weight": (HIDDEN, HIDDEN),
    "blk.0.ffn_gate.weight": (FEED, HIDDEN),
    "blk.0.ffn_up.weight": (FEED, HIDDEN),
    "blk.0.ffn_down.weight": (HIDDEN, FEED),
}
NORMS = ("blk.0.attn_norm.weight", "blk.0.ffn_norm.weight", "output_norm.weight")
Q4_1 = gguf.GGMLQuantizationType.Q4_1


def byte_tokens():
    """The 256 printable stand-ins of a byte-level vocabulary, then some more to fill it up."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [chr(256 + n) for n in range(256 - len(plain))]
    bytes_ = [chr(code) for code in plain] + others
    return [*bytes_, *(f"<|x{n}|>" for n in range(VOCAB - len(bytes_) - 1)), "ab"]


def describe(writer):
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(1)
    writer.add_feed_forward_length(FEED)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_vocab_size(VOCAB)
    tokens = byte_tokens()
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * 256 + [3] * (VOCAB - 257) + [1])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(256)
    writer.add_eos_token_id(257)
    writer.add_chat_template("{% for m in messages %}{{ m['content'] }}{% endfor %}")


def main(path):
    random = numpy.random.default_rng(7)
    writer = gguf.GGUFWriter(path, "llama")
    describe(writer)
    sums = {}
    for name, shape in SHAPES.items():
        packed = gguf.quants.quantize(random.normal(size=shape).astype(numpy.float32), Q4_1)
        writer.add_tensor(name, packed, raw_dtype=Q4_1)
        sums[name] = float(numpy.abs(gguf.quants.dequantize(packed, Q4_1)).sum())
    for name in NORMS:
        writer.add_tensor(name, numpy.ones(HIDDEN, dtype=numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    print(json.dumps(sums))


if __name__ == "__main__":
    main(sys.argv[1])
