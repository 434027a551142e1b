#include "stowage/io/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>

#include "stowage/io/files.h"

namespace stow {
namespace {

constexpr std::string_view kPrefix = "events.out.tfevents.";
constexpr int64_t kMaxFileBytes = int64_t{1} << 30;
constexpr size_t kHeaderBytes = 12, kFooterBytes = 4;  // around a record's data

// Field numbers of event.proto and summary.proto.
namespace field {
constexpr uint32_t kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
constexpr uint32_t kSummaryValue = 1, kTag = 1, kSimpleValue = 2;
constexpr uint32_t kSessionStatus = 1;
}  // namespace field
constexpr uint64_t kSessionStart = 1;

enum class Wire : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

constexpr std::array<uint32_t, 256> crc_table() {
  constexpr uint32_t kReversedPolynomial = 0x82F63B78;
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < table.size(); ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? kReversedPolynomial : 0);
    table[i] = crc;
  }
  return table;
}

// A file that holds checksums of checksums would otherwise have weak ones.
uint32_t masked_crc(std::string_view bytes) {
  constexpr uint32_t kMaskDelta = 0xA282EAD8;
  return std::rotr(crc32c(as_bytes(bytes)), 15) + kMaskDelta;
}

// --- writing -----------------------------------------------------------------------------------

template <typename Unsigned>
void put_fixed(std::string& out, Unsigned value) {
  for (size_t i = 0; i < sizeof value; ++i) out += static_cast<char>(value >> (8 * i) & 0xFF);
}
void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7F) | 0x80);
  out += static_cast<char>(value);
}
void put_key(std::string& out, uint32_t number, Wire wire) {
  put_varint(out, number << 3 | static_cast<uint32_t>(wire));
}
void put_bytes(std::string& out, uint32_t number, std::string_view bytes) {
  put_key(out, number, Wire::kBytes);
  put_varint(out, bytes.size());
  out += bytes;
}

// The part of an event that all have.
std::string event_at(int64_t step) {
  const double now_s =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  std::string event;
  put_key(event, field::kWallTime, Wire::kFixed64);
  put_fixed(event, std::bit_cast<uint64_t>(now_s));
  put_key(event, field::kStep, Wire::kVarint);
  put_varint(event, static_cast<uint64_t>(step));
  return event;
}

// The seconds in the name of an event file; none where the name is another.
std::optional<int64_t> seconds_of(const std::string& name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  int64_t seconds = 0;
  const char* begin = name.data() + kPrefix.size();
  const auto [end, code] = std::from_chars(begin, name.data() + name.size(), seconds);
  if (code != std::errc() || end != begin + 10) return std::nullopt;  // others sort elsewhere
  return seconds;
}

// Now, or a second behind the newest event file of the folder.
Result<int64_t> next_seconds(const std::string& folder) {
  constexpr int64_t kMaxSeconds = 9'999'999'999;
  int64_t seconds = std::chrono::duration_cast<std::chrono::seconds>(
                        std::chrono::system_clock::now().time_since_epoch())
                        .count();
  std::error_code code;
  for (std::filesystem::directory_iterator at(folder, code), end; !code && at != end;
       at.increment(code))
    if (const auto there = seconds_of(at->path().filename().string()))
      seconds = std::max(seconds, std::min(*there + 1, kMaxSeconds));
  if (code) return fail("{}: {}", folder, code.message());
  return seconds;
}

// The name of this machine, as it may stand in the name of a file.
std::string host_name() {
  std::array<char, 65> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "host";
  std::string text = name.data();
  for (char& c : text)
    if (!(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && !(c >= '0' && c <= '9') && c != '-')
      c = '_';
  return text;
}

// --- reading -----------------------------------------------------------------------------------

template <typename Unsigned>
Unsigned fixed_at(std::string_view bytes, size_t at) {
  Unsigned value = 0;
  for (size_t i = 0; i < sizeof value; ++i)
    value |= static_cast<Unsigned>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
  return value;
}

// A field of a message: its number, and the value by its wire type.
struct Field {
  uint32_t number = 0;
  Wire wire = Wire::kVarint;
  uint64_t bits = 0;       // of the numbers
  std::string_view bytes;  // of kBytes
};

// Takes the fields of a message one after another. None where it is malformed.
class Fields {
 public:
  explicit Fields(std::string_view message) : rest_(message) {}

  bool at_end() const { return rest_.empty(); }
  std::optional<Field> next() {
    const std::optional<uint64_t> key = varint();
    if (!key || *key >> 3 == 0 || *key >> 32 != 0) return std::nullopt;
    Field f{.number = static_cast<uint32_t>(*key >> 3), .wire = static_cast<Wire>(*key & 7)};
    switch (f.wire) {
      case Wire::kVarint:
        if (const std::optional<uint64_t> value = varint()) return f.bits = *value, f;
        return std::nullopt;
      case Wire::kFixed64:
        if (rest_.size() < 8) return std::nullopt;
        f.bits = fixed_at<uint64_t>(rest_, 0);
        return rest_.remove_prefix(8), f;
      case Wire::kFixed32:
        if (rest_.size() < 4) return std::nullopt;
        f.bits = fixed_at<uint32_t>(rest_, 0);
        return rest_.remove_prefix(4), f;
      case Wire::kBytes: {
        const std::optional<uint64_t> size = varint();
        if (!size || *size > rest_.size()) return std::nullopt;
        f.bytes = rest_.substr(0, *size);
        return rest_.remove_prefix(*size), f;
      }
    }
    return std::nullopt;  // groups, which these messages have not
  }

 private:
  std::optional<uint64_t> varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  }

  std::string_view rest_;
};

// Gives every field of a message to `take`. False where it is malformed, or `take` says so.
template <typename Take>
bool each_field(std::string_view message, Take&& take) {
  for (Fields fields(message); !fields.at_end();) {
    const std::optional<Field> f = fields.next();
    if (!f || !take(*f)) return false;
  }
  return true;
}

bool is(const Field& f, uint32_t number, Wire wire) { return f.number == number && f.wire == wire; }

bool parse_summary(std::string_view message, std::vector<EventScalar>& scalars) {
  return each_field(message, [&](const Field& f) {
    if (!is(f, field::kSummaryValue, Wire::kBytes)) return true;
    EventScalar scalar;
    bool is_scalar = false;
    const bool parsed = each_field(f.bytes, [&](const Field& v) {
      if (is(v, field::kTag, Wire::kBytes)) scalar.tag = v.bytes;
      if (is(v, field::kSimpleValue, Wire::kFixed32)) {
        scalar.value = std::bit_cast<float>(static_cast<uint32_t>(v.bits));
        is_scalar = true;
      }
      return true;
    });
    if (parsed && is_scalar) scalars.push_back(std::move(scalar));
    return parsed;
  });
}

bool parse_event(std::string_view message, Event& event) {
  return each_field(message, [&](const Field& f) {
    if (is(f, field::kWallTime, Wire::kFixed64)) event.wall_time_s = std::bit_cast<double>(f.bits);
    if (is(f, field::kStep, Wire::kVarint)) event.step = static_cast<int64_t>(f.bits);
    if (is(f, field::kFileVersion, Wire::kBytes)) event.file_version = f.bytes;
    if (is(f, field::kSummary, Wire::kBytes)) return parse_summary(f.bytes, event.scalars);
    if (is(f, field::kSessionLog, Wire::kBytes))
      return each_field(f.bytes, [&](const Field& s) {
        if (is(s, field::kSessionStatus, Wire::kVarint)) event.is_start = s.bits == kSessionStart;
        return true;
      });
    return true;
  });
}

}  // namespace

uint32_t crc32c(std::span<const std::byte> bytes) {
  static constexpr std::array<uint32_t, 256> kTable = crc_table();
  uint32_t crc = ~uint32_t{0};
  for (const std::byte b : bytes)
    crc = (crc >> 8) ^ kTable[(crc ^ static_cast<uint32_t>(b)) & 0xFF];
  return ~crc;
}

Result<EventFile> EventFile::create(const std::string& folder, int64_t first_step) {
  if (Result<void> made = ensure_directory(folder); !made) return made.failure();
  const Result<int64_t> seconds = next_seconds(folder);
  if (!seconds) return seconds.failure();
  std::string path;
  int fd = -1;
  for (int n = 0; fd < 0; ++n) {
    path =
        fmt::format("{}/{}{:010}.{}.{}.{}", folder, kPrefix, *seconds, host_name(), ::getpid(), n);
    fd = open_file(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND);
    if (fd < 0 && errno != EEXIST) return system_failure(path);
  }
  EventFile file(path, FileDescriptor(fd));
  std::string version = event_at(0), start = event_at(first_step), status;
  put_bytes(version, field::kFileVersion, "brain.Event:2");
  put_key(status, field::kSessionStatus, Wire::kVarint);
  put_varint(status, kSessionStart);
  put_bytes(start, field::kSessionLog, status);
  for (const std::string* event : {&version, &start})
    if (Result<void> written = file.append(*event); !written) return written.failure();
  return file;
}

Result<void> EventFile::write(int64_t step, std::span<const EventScalar> scalars) {
  std::string event = event_at(step), summary;
  for (const EventScalar& scalar : scalars) {
    std::string value;
    put_bytes(value, field::kTag, scalar.tag);
    put_key(value, field::kSimpleValue, Wire::kFixed32);
    put_fixed(value, std::bit_cast<uint32_t>(scalar.value));
    put_bytes(summary, field::kSummaryValue, value);
  }
  put_bytes(event, field::kSummary, summary);
  return append(event);
}

Result<void> EventFile::append(const std::string& event) {
  std::string record;
  put_fixed(record, static_cast<uint64_t>(event.size()));
  put_fixed(record, masked_crc(record));
  record += event;
  put_fixed(record, masked_crc(event));
  const Result<void> written = write_fully(file_.get(), as_bytes(record), path_);
  if (written)
    size_bytes_ += static_cast<int64_t>(record.size());
  else
    (void)!::ftruncate(file_.get(), size_bytes_);  // a reader stops before half a record as well
  return written;
}

Result<std::vector<Event>> read_events(const std::string& path) {
  const Result<std::string> text = read_regular_file(path, kMaxFileBytes);
  if (!text) return text.failure();
  const std::string_view all = *text;
  std::vector<Event> events;
  for (size_t at = 0; all.size() - at >= kHeaderBytes;) {
    const auto size = fixed_at<uint64_t>(all, at);
    if (fixed_at<uint32_t>(all, at + 8) != masked_crc(all.substr(at, 8)))
      return fail("{}: byte {}: the checksum of a record's length does not match", path, at);
    const size_t rest = all.size() - at - kHeaderBytes;
    if (rest < kFooterBytes || size > rest - kFooterBytes) break;
    const std::string_view data = all.substr(at + kHeaderBytes, size);
    const size_t behind = at + kHeaderBytes + size;
    if (fixed_at<uint32_t>(all, behind) != masked_crc(data))
      return fail("{}: byte {}: the checksum of a record does not match", path, at);
    if (!parse_event(data, events.emplace_back()))
      return fail("{}: byte {}: the record is not an event", path, at);
    at = behind + kFooterBytes;
  }
  return events;
}

}  // namespace stow
