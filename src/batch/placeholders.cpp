// Follows the quotes of a command to find its placeholders; see placeholders.h.
//
// A wrong guess would let a value run as code. So the parser follows only what /bin/sh and bash
// read in the same way, and gives up at everything else: from there on, to the end of the command,
// no placeholder accepts quotes.
#include "batch/placeholders.h"

#include <algorithm>
#include <array>
#include <utility>

namespace berth::batch {
namespace {

constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_";
constexpr std::string_view kNameCharacters =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789";

bool is_one_of(char letter, std::string_view letters) {
  return letters.find(letter) != std::string_view::npos;
}

class PlaceholderFinder {
 public:
  explicit PlaceholderFinder(std::string_view command) : command_(command) {}

  std::vector<Placeholder> find() {
    while (position_ < command_.size()) {
      if (cause_.empty() && !is_comment_) {
        follow_quotes();
      } else {
        skip_letter();
      }
    }
    return std::move(found_);
  }

 private:
  bool next_is(std::string_view text) const { return command_.substr(position_).starts_with(text); }

  char previous() const { return position_ > 0 ? command_[position_ - 1] : '\0'; }

  // The text from here on, `length` long, is not understood.
  void give_up(std::size_t length) { cause_ = command_.substr(position_, length); }

  // Inside a comment, and where the quotes are not followed.
  void skip_letter() {
    if (is_comment_ && command_[position_] == '\n') {
      is_comment_ = false;
      in_word_ = false;
    } else if (!is_comment_ && command_[position_] == '\\') {
      ++position_;
    }
    note_placeholder();
    ++position_;
  }

  void follow_quotes() {
    if (quote_ == '\'') {
      if (command_[position_] == '\'') quote_ = 0;
    } else if (command_[position_] == '\\') {
      return skip_escaped();
    } else if (!give_up_at_expansion() && quote_ == '"') {
      if (command_[position_] == '"') quote_ = 0;
    } else if (cause_.empty()) {
      follow_plain_text();
    }
    note_placeholder();
    ++position_;
  }

  // A line break behind a backslash is removed before the shell looks for operators such as "$(".
  void skip_escaped() {
    if (position_ + 1 < command_.size() && command_[position_ + 1] == '\n') {
      const bool splits_word =
          quote_ == '"' ? previous() == '$' : in_word_ || !is_one_of(previous(), " \t");
      if (splits_word) give_up(1);
    } else {
      enter_word();
    }
    position_ += 2;
  }

  void follow_plain_text() {
    const char letter = command_[position_];
    if (letter == '#' && !in_word_) return begin_comment();
    if (is_one_of(letter, " \t\n;&|()<>")) {
      in_word_ = false;
      has_substitution_ = has_substitution_ || (letter == '(' && is_one_of(previous(), "$<>"));
      return;
    }
    if (letter == '[' && in_word_ && is_variable_name(word())) give_up(1);  // an array's element
    enter_word();
    if (letter == '\'' || letter == '"') quote_ = letter;
  }

  // Shells differ in how they find the end of "$(" behind a comment.
  void begin_comment() {
    if (has_substitution_) return give_up(1);
    is_comment_ = true;
  }

  void enter_word() {
    if (!in_word_) word_begin_ = position_;
    in_word_ = true;
  }

  std::string_view word() const { return command_.substr(word_begin_, position_ - word_begin_); }

  static bool is_variable_name(std::string_view text) {
    return is_one_of(text.front(), kLetters) &&
           text.find_first_not_of(kNameCharacters) == std::string_view::npos;
  }

  // Whether the parser gives up here: a command, an expression or a text with rules of its own
  // begins.
  bool give_up_at_expansion() {
    static constexpr std::array<std::string_view, 2> kAnywhere{"`", "$["};
    static constexpr std::array<std::string_view, 4> kPlainOnly{"((", "<<", "$'", "$(("};
    const auto begins = [this](std::string_view text) {
      if (!next_is(text)) return false;
      give_up(text.size());
      return true;
    };
    if (std::any_of(kAnywhere.begin(), kAnywhere.end(), begins)) return true;
    if (next_is("${") && !is_simple_expansion()) return begins("${");
    if (quote_ == '"') return begins("$(");
    if (!in_word_ && begins("[[")) return true;
    return std::any_of(kPlainOnly.begin(), kPlainOnly.end(), begins);
  }

  // Whether "${...}" has nothing that could be a quote, a command or the begin of a comment.
  bool is_simple_expansion() const {
    constexpr std::string_view kMore = "@*#?!-:+=%/.,^~[]";
    const std::string_view rest = command_.substr(position_ + 2);
    for (const char letter : rest) {
      if (letter == '}') return true;
      if (!is_one_of(letter, kNameCharacters) && !is_one_of(letter, kMore)) return false;
    }
    return false;
  }

  // Whether "$NAME" ends directly before the current letter.
  bool follows_variable() const {
    if (quote_ == '\'' || is_comment_) return false;
    const std::string_view before = command_.substr(0, position_);
    const auto end = before.find_last_not_of(kNameCharacters);
    return end != std::string_view::npos && before[end] == '$' && end + 1 < before.size() &&
           is_one_of(before[end + 1], kLetters);
  }

  void note_placeholder() {
    if (!next_is("{") || previous() == '$') return;
    const std::string_view rest = command_.substr(position_ + 1);
    const auto end = rest.find_first_of("{} \t\n'\"`");
    if (end == std::string_view::npos || rest[end] != '}') return;
    const std::string_view name = rest.substr(0, end);
    found_.push_back({position_, name, context(), cause_, follows_variable()});
    // If a value replaces the name, the shell does not read these characters; otherwise it does.
    if (cause_.empty() && name.find_first_of("\\$;&|()<>[") != std::string_view::npos)
      give_up(name.size() + 2);
  }

  PlaceholderContext context() const {
    if (!cause_.empty()) return PlaceholderContext::not_followed;
    if (is_comment_) return PlaceholderContext::comment;
    return quote_ == 0 ? PlaceholderContext::plain : PlaceholderContext::quoted;
  }

  std::string_view command_;
  std::size_t position_ = 0;
  char quote_ = 0;  // the quote that is open
  bool is_comment_ = false;
  bool in_word_ = false;  // so that '#' does not begin a comment
  std::size_t word_begin_ = 0;
  bool has_substitution_ = false;  // "$(", "<(" or ">(" was read
  std::string_view cause_;         // not empty: the parser has given up here
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
