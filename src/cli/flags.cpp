// Declares flags to CLI11; see flags.h.
#include "cli/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "base/text.h"

namespace berth {
namespace {

// "spread, pack and random".
std::string join_words(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const char* glue = i == 0 ? "" : i + 1 == words.size() ? " and " : ", ";
    text.append(glue).append(words[i]);
  }
  return text;
}

}  // namespace

void Flags::add_flag(const char* name, bool& target, const char* help) {
  parser_.add_flag(name, target, help)->disable_flag_override()->group(group_);
}

CLI::Option* Flags::add_option(const char* names, const char* type, const char* help,
                               ValueParser parse, Occurrence occurrence) {
  const std::string all = names;
  const std::string name = all.substr(std::min(all.size(), all.find(',') + 1));
  const auto read = [name, occurrence, parse = std::move(parse)](const CLI::results_t& texts) {
    if (texts.size() > 1 && occurrence == Occurrence::once) {
      throw CLI::ValidationError(name, "given more than once; give it once");
    }
    for (const std::string& text : texts) {
      const auto parsed = parse(text);
      if (!parsed) throw CLI::ValidationError(name, parsed.error().message);
    }
    return true;
  };
  return parser_.add_option(all, read, help)
      ->multi_option_policy(
          CLI::MultiOptionPolicy::TakeAll)  // `read` rejects repetition with our own message
      ->type_name(type)
      ->group(group_);
}

void Flags::add_value(const char* names, const char* type, const char* help, ValueParser parse) {
  add_option(names, type, help, std::move(parse));
}

void Flags::add_text(const char* names, const char* type, const char* help, std::string& target) {
  add_option(names, type, help, [&target](std::string_view text) -> Result<void> {
    target = text;
    return {};
  });
}

void Flags::add_repeated_value(const char* names, const char* type, const char* help,
                               ValueParser parse) {
  CLI::Option* option = add_option(names, type, help, std::move(parse), Occurrence::any_number);
  option->allow_extra_args(false);
}

void Flags::add_choice(const char* names, const char* type, const char* help, std::string& target) {
  const auto words = CLI::detail::split(type, '|');
  add_option(names, type, help, [words, &target](std::string_view text) -> Result<void> {
    if (std::find(words.begin(), words.end(), text) == words.end()) {
      return fail(ErrorKind::usage,
                  fmt::format("{} is not one of {}", in_quotes(text), join_words(words)));
    }
    target = text;
    return {};
  });
}

void Flags::add_optional_value(const char* names, const char* type, const char* help,
                               ValueParser parse) {
  CLI::Option* option = add_option(names, type, help, std::move(parse));
  option->expected(0, 1);
}

void Flags::add_positionals(const char* name, const char* help, std::vector<std::string>& target) {
  parser_.add_option(name, target, help)->type_name("");
}

void Flags::add_help_entry(const char* name, const char* type, const char* help) {
  const std::string text = help;
  parser_.add_option(name, text)->type_name(type);
}

void Flags::set_check(std::function<Result<void>()> check) {
  parser_.callback([check = std::move(check)] {
    const auto fine = check();
    if (!fine) throw CLI::ValidationError(fine.error().message);
  });
}

void Flags::set_footer(const char* text) {
  parser_.footer(text);
}

}  // namespace berth
