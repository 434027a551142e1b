// JsonFields: typed, range-checked members of a JSON object from outside, with one error for all.
// Not a schema: keys that nobody asks for are ignored.
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

/// Reads members of one object. The first error stays; what is read after it is a default. A null
/// member counts as absent.
class JsonFields {
 public:
  using Names = std::map<std::string, std::string>;

  /// `prefix` stands before keys in errors, as "rope_scaling."; `names` renames keys in errors.
  JsonFields(const Json& object, std::string* error, std::string prefix = "",
             const Names* names = nullptr)
      : object_(object), error_(error), prefix_(std::move(prefix)), names_(names) {}

  /// The member; null where it is absent or null.
  const Json* find(std::string_view key) const;

  std::optional<int64_t> integer(std::string_view key, int64_t least, int64_t most);
  int64_t integer(std::string_view key, int64_t least, int64_t most, int64_t otherwise);
  /// Finite and in [least, most].
  std::optional<double> number(std::string_view key, double least, double most);
  double number(std::string_view key, double least, double most, double otherwise);
  std::optional<bool> boolean(std::string_view key);
  bool boolean(std::string_view key, bool otherwise);
  std::optional<std::string> text(std::string_view key);
  /// An integer, or an array of at most 1024 of them.
  std::vector<int64_t> integers(std::string_view key, int64_t least, int64_t most);

  /// Records the error "KEY: reason" unless there is one.
  void refuse(std::string_view key, std::string_view reason);
  bool failed() const { return !error_->empty(); }  ///< True if an error is recorded.

 private:
  void expect(std::string_view key, std::string_view what, const Json& got);

  const Json& object_;
  std::string* error_;
  std::string prefix_;
  const Names* names_;
};

/// JSON from outside in a message: its text on one line, at most 80 bytes of it.
std::string shown(const Json& value);
std::string shown(const Json* value);  ///< The same; "nothing" if it is null.
/// The same of a name: in quotes.
std::string shown_name(std::string_view name);

}  // namespace stow
