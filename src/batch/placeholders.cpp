// Follows the quotes of a command to find its placeholders; see placeholders.h.
#include "batch/placeholders.h"

#include <utility>

namespace berth::batch {
namespace {

class PlaceholderFinder {
 public:
  explicit PlaceholderFinder(std::string_view command) : command_(command) {}

  std::vector<Placeholder> find() {
    while (position_ < command_.size()) read_letter();
    return std::move(found_);
  }

 private:
  bool next_is(std::string_view text) const { return command_.substr(position_).starts_with(text); }

  void read_letter() {
    if (command_[position_] == '\\' && quote_ != '\'') {
      position_ += 2;
      return;
    }
    note_quote();
    if (next_is("{") && !follows("$")) add_placeholder();
    ++position_;
  }

  // Whether the letter before this one is one of `letters`.
  bool follows(std::string_view letters) const {
    return position_ > 0 && letters.find(command_[position_ - 1]) != std::string_view::npos;
  }

  void note_quote() {
    const char letter = command_[position_];
    if (letter == '\n') is_comment_ = false;
    if (is_comment_) return;
    if (quote_ != 0) {
      if (quote_ == '"' && (letter == '`' || next_is("$("))) is_opaque_ = true;
      if (letter == quote_) quote_ = 0;
    } else if (letter == '\'' || letter == '"' || letter == '`') {
      quote_ = letter;
      if (letter == '\'' && follows("$")) is_opaque_ = true;
    } else if (letter == '#' && (position_ == 0 || follows(" \t\n;&|()"))) {
      is_comment_ = true;
    } else if (next_is("((") || next_is("$[") || next_is("<<")) {
      is_opaque_ = true;
    }
  }

  void add_placeholder() {
    const std::string_view rest = command_.substr(position_ + 1);
    const auto end = rest.find_first_of("{} \t\n'\"`");
    if (end == std::string_view::npos || rest[end] != '}') return;
    const bool accepts_quotes = quote_ == 0 && !is_opaque_ && !is_comment_;
    found_.push_back({position_, rest.substr(0, end), accepts_quotes});
  }

  std::string_view command_;
  std::size_t position_ = 0;
  char quote_ = 0;  // the quote that is open
  bool is_comment_ = false;
  bool is_opaque_ = false;  // what follows is not understood, to the end of the command
  std::vector<Placeholder> found_;
};

}  // namespace

std::vector<Placeholder> find_placeholders(std::string_view command) {
  return PlaceholderFinder(command).find();
}

bool is_plain_value(std::string_view value) {
  constexpr std::string_view kPlain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/._+-=,:@%";
  return value.find_first_not_of(kPlain) == std::string_view::npos;
}

}  // namespace berth::batch
