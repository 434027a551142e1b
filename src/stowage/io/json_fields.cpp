#include "stowage/io/json_fields.h"

#include <cmath>

namespace stow {

std::string shown(const Json& value) {
  constexpr size_t kShown = 80;
  if (const std::string* text = value.as_string(); text && text->size() > kShown)
    return Json(text->substr(0, kShown) + "…").dump();
  if (const Json::Array* elements = value.as_array(); elements && elements->size() > 16)
    return fmt::format("an array of {}", elements->size());
  if (const Json::Object* members = value.as_object())
    return fmt::format("an object of {} members", members->size());
  const std::string text = value.dump();
  if (text.size() <= kShown) return text;
  // Cut between characters.
  size_t end = kShown;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end) + "…";
}

std::string shown(const Json* value) { return value ? shown(*value) : "nothing"; }

std::string shown_name(std::string_view name) {
  return shown(Json(name));
}

const Json* JsonFields::find(std::string_view key) const {
  const Json* value = object_.find(key);
  return value && !value->is_null() ? value : nullptr;
}

void JsonFields::refuse(std::string_view key, std::string_view reason) {
  if (failed()) return;
  std::string name = prefix_ + std::string(key);
  if (names_)
    if (const auto renamed = names_->find(name); renamed != names_->end()) name = renamed->second;
  *error_ = fmt::format("{}: {}", name, reason);
}

void JsonFields::expect(std::string_view key, std::string_view what, const Json& got) {
  refuse(key, fmt::format("expected {}, got {}", what, shown(got)));
}

std::optional<int64_t> JsonFields::integer(std::string_view key, int64_t least, int64_t most) {
  const Json* value = find(key);
  if (!value) return std::nullopt;
  const Result<int64_t> number = value->as_int();
  if (number && *number >= least && *number <= most) return *number;
  expect(key, fmt::format("an integer from {} to {}", least, most), *value);
  return std::nullopt;
}

int64_t JsonFields::integer(std::string_view key, int64_t least, int64_t most, int64_t otherwise) {
  return integer(key, least, most).value_or(otherwise);
}

std::optional<double> JsonFields::number(std::string_view key, double least, double most) {
  const Json* value = find(key);
  if (!value) return std::nullopt;
  const Result<double> number = value->as_double();
  if (number && std::isfinite(*number) && *number >= least && *number <= most) return *number;
  expect(key, fmt::format("a number from {} to {}", least, most), *value);
  return std::nullopt;
}

double JsonFields::number(std::string_view key, double least, double most, double otherwise) {
  return number(key, least, most).value_or(otherwise);
}

std::optional<bool> JsonFields::boolean(std::string_view key) {
  const Json* value = find(key);
  if (!value) return std::nullopt;
  if (value->as_bool()) return *value->as_bool();
  expect(key, "true or false", *value);
  return std::nullopt;
}

bool JsonFields::boolean(std::string_view key, bool otherwise) {
  return boolean(key).value_or(otherwise);
}

std::optional<std::string> JsonFields::text(std::string_view key) {
  const Json* value = find(key);
  if (!value) return std::nullopt;
  if (value->as_string()) return *value->as_string();
  expect(key, "a string", *value);
  return std::nullopt;
}

std::vector<int64_t> JsonFields::integers(std::string_view key, int64_t least, int64_t most) {
  constexpr size_t kMost = 1024;
  const Json* value = find(key);
  if (!value) return {};
  if (!value->as_array()) {
    const std::optional<int64_t> one = integer(key, least, most);
    return one ? std::vector<int64_t>{*one} : std::vector<int64_t>();
  }
  std::vector<int64_t> all;
  for (const Json& element : *value->as_array()) {
    const Result<int64_t> number = element.as_int();
    if (!number || *number < least || *number > most || all.size() == kMost) {
      expect(key,
             fmt::format("an integer or at most {} integers from {} to {}", kMost, least, most),
             *value);
      return {};
    }
    all.push_back(*number);
  }
  return all;
}

}  // namespace stow
