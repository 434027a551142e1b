// JsonFields: reads typed, range-checked members of a JSON object, and keeps the first error.
// Not a schema: keys that are not read are ignored.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/io/json.h"

namespace stow {

/// Reads members of one object. A reader returns none, an empty list or `otherwise` if the member
/// is absent or faulty; a null member counts as absent. The first error is recorded.
class JsonFields {
 public:
  using Names = std::map<std::string, std::string>;

  /// `error`: receives the first error; must outlive this object. `prefix`: text before keys in
  /// errors ("rope_scaling."). `names`: other names of keys for errors, by key.
  JsonFields(const Json& object, std::string* error, std::string prefix = "",
             const Names* names = nullptr)
      : object_(object), error_(error), prefix_(std::move(prefix)), names_(names) {}

  /// The member; null where it is absent or null.
  const Json* find(std::string_view key) const;

  /// An integer in [least, most].
  std::optional<int64_t> integer(std::string_view key, int64_t least, int64_t most);
  int64_t integer(std::string_view key, int64_t least, int64_t most, int64_t otherwise);
  /// A finite number in [least, most].
  std::optional<double> number(std::string_view key, double least, double most);
  double number(std::string_view key, double least, double most, double otherwise);
  std::optional<bool> boolean(std::string_view key);
  bool boolean(std::string_view key, bool otherwise);
  std::optional<std::string> text(std::string_view key);
  /// An integer or an array of at most 1024 integers, each in [least, most].
  std::vector<int64_t> integers(std::string_view key, int64_t least, int64_t most);

  /// Records the error "KEY: reason", unless an error is recorded already.
  void refuse(std::string_view key, std::string_view reason);
  bool failed() const { return !error_->empty(); }  ///< True if an error is recorded.

 private:
  void expect(std::string_view key, std::string_view what, const Json& got);

  const Json& object_;
  std::string* error_;
  std::string prefix_;
  const Names* names_;
};

/// Returns a JSON value as text for a message: one line, cut after 80 bytes. Objects and arrays of
/// more than 16 elements are shown as their number of members or elements.
std::string shown(const Json& value);
std::string shown(const Json* value);  ///< shown(*value); "nothing" for a null pointer.
/// Returns a name as text for a message, shortened like a value and in quotes.
std::string shown_name(std::string_view name);

}  // namespace stow
