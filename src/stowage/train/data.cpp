#include "stowage/train/data.h"

#include <algorithm>
#include <span>

#include "stowage/base/bytes.h"
#include "stowage/io/digest.h"
#include "stowage/io/files.h"

namespace stow {
namespace {

constexpr int64_t kMaxTextBytes = int64_t{16} << 30;

}  // namespace

uint64_t mix_bits(uint64_t a, uint64_t b, uint64_t c) {
  uint64_t x = a;
  for (uint64_t next : {b, c}) {
    x += 0x9e3779b97f4a7c15ULL + next;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    x ^= x >> 31;
  }
  return x;
}

Result<ByteData> ByteData::open(const std::string& path, int64_t vocab, int64_t seq) {
  // Pipes and devices are refused: a pipe cannot be read again, and a device may have no end.
  const Result<InputFile> file = InputFile::open(path);
  if (!file) return file.failure();
  const int64_t n = file->size_bytes();
  if (n > kMaxTextBytes)
    return fail("{}: expected at most {}, got {}", path, format_bytes(kMaxTextBytes),
                format_bytes(n));
  ByteData data;
  data.seq_ = seq;
  data.text_.resize(static_cast<size_t>(n));
  if (Result<void> read = file->read(0, std::as_writable_bytes(std::span(data.text_))); !read)
    return read.failure();
  if (n == 0) return fail("{}: expected text, got an empty file", path);
  const int64_t held_out = n / 10;
  data.n_train_ = n - held_out;
  if (data.n_train_ < seq + 1 || held_out < seq + 1)
    return fail("{}: {} are too few for data.seq={}: a tenth is held out and must hold {} bytes",
                path, format_bytes(n), seq, seq + 1);
  const unsigned char top = static_cast<unsigned char>(
      *std::max_element(data.text_.begin(), data.text_.end(), [](char a, char b) {
        return static_cast<unsigned char>(a) < static_cast<unsigned char>(b);
      }));
  if (top >= vocab)
    return fail("{}: it holds the byte {}, beyond model.vocab={}", path, static_cast<int>(top),
                vocab);
  return data;
}

namespace {

void append_window(const std::string& text, int64_t at, int64_t length, std::vector<int32_t>& out) {
  for (int64_t i = 0; i < length; ++i)
    out.push_back(static_cast<unsigned char>(text[static_cast<size_t>(at + i)]));
}

}  // namespace

std::vector<int32_t> ByteData::train_batch(uint64_t seed, int64_t step, int64_t batch) const {
  std::vector<int32_t> tokens;
  tokens.reserve(static_cast<size_t>(batch * (seq_ + 1)));
  const uint64_t places = static_cast<uint64_t>(n_train_ - seq_);
  for (int64_t row = 0; row < batch; ++row)
    append_window(text_,
                  static_cast<int64_t>(mix_bits(seed, static_cast<uint64_t>(step),
                                                static_cast<uint64_t>(row)) %
                                       places),
                  seq_ + 1, tokens);
  return tokens;
}

int64_t ByteData::n_validation_windows() const {
  return (static_cast<int64_t>(text_.size()) - n_train_ - 1) / seq_;
}

std::vector<int32_t> ByteData::validation_batch(int64_t first_window, int64_t batch) const {
  std::vector<int32_t> tokens;
  for (int64_t row = 0; row < batch; ++row)
    append_window(text_, n_train_ + ((first_window + row) % n_validation_windows()) * seq_,
                  seq_ + 1, tokens);
  return tokens;
}

std::string ByteData::validation_text(int64_t bytes) const {
  return text_.substr(static_cast<size_t>(n_train_), static_cast<size_t>(bytes));
}

std::string ByteData::digest() const {
  Digest digest;
  digest.update(std::as_bytes(std::span(text_)));
  return digest.hex();
}

}  // namespace stow
