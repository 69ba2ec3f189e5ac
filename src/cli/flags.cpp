// Declares, parses and describes flags; see flags.h.
#include "cli/flags.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <optional>
#include <utility>

#include "base/suggestion.h"
#include "base/text.h"

namespace berth {
namespace {

constexpr std::size_t kHelpColumn = 30;

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (;;) {
    const std::size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// "spread, pack and random".
std::string join_words(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const char* glue = i == 0 ? "" : i + 1 == words.size() ? " and " : ", ";
    text.append(glue).append(words[i]);
  }
  return text;
}

Option::ValueParser store_in(std::string& target) {
  return [&target](std::string_view text) -> Result<void> {
    target = text;
    return {};
  };
}

std::string format_name(const Option& option) {
  std::string text = option.short_name + (option.short_name.empty() ? "" : ",") + option.name;
  if (option.is_argument() && option.repeatable) text += " ...";
  if (!option.type.empty() && option.value != Option::Value::none) text += ' ' + option.type;
  return text;
}

// A word that is a flag, divided into its name and the value that is written in the same word.
struct FlagWord {
  std::string_view name;
  std::optional<std::string_view> value;
};

FlagWord split_flag(std::string_view word) {
  if (word.starts_with("--")) {
    const std::size_t equals = word.find('=');
    if (equals == std::string_view::npos) return {word, std::nullopt};
    return {word.substr(0, equals), word.substr(equals + 1)};
  }
  if (word.size() <= 2) return {word, std::nullopt};
  return {word.substr(0, 2), word.substr(2)};  // -n2
}

// Flags of other tools, and words that users try.
struct FlagSynonym {
  std::string_view word;
  const char* flag;  // the first flag of `suggestion`
  const char* suggestion;
};
constexpr std::array kFlagSynonyms{
    FlagSynonym{"--gpus", "-n", "-n (how many) or --gpu (which)"},
    FlagSynonym{"--num-gpus", "-n", "-n"},
    FlagSynonym{"--ngpus", "-n", "-n"},
    FlagSynonym{"--gpu-ids", "--gpu", "--gpu"},
    FlagSynonym{"--gpu-id", "--gpu", "--gpu"},
    FlagSynonym{"--device", "--gpu", "--gpu"},
    FlagSynonym{"--devices", "--gpu", "--gpu"},
    FlagSynonym{"--memory", "--mem", "--mem"},
    FlagSynonym{"--vram", "--mem", "--mem"},
    FlagSynonym{"--gpu-mem", "--mem", "--mem"},
    FlagSynonym{"--gres", "-n", "-n (how many) or --gpu (which)"},
    FlagSynonym{"--parallel", "--jobs", "--jobs"},
    FlagSynonym{"--max-jobs", "--jobs", "--jobs"},
    FlagSynonym{"--workers", "--jobs", "--jobs"},
    FlagSynonym{"--host", "--listen", "--listen"},
    FlagSynonym{"--bind", "--listen", "--listen"},
    FlagSynonym{"--address", "--listen", "--listen"},
    FlagSynonym{"--nonblock", "--no-wait", "--no-wait"},
    FlagSynonym{"--wait", "--timeout", "--timeout"},
    FlagSynonym{"--duration", "--time", "--time"},
    FlagSynonym{"--walltime", "--time", "--time"},
    FlagSynonym{"--job-name", "--label", "--label"},
    FlagSynonym{"--comment", "--label", "--label"},
    FlagSynonym{"--continue", "--resume", "--resume"},
    FlagSynonym{"-v", "--version", "--version"},
    FlagSynonym{"-a", "--all", "--all"},
    FlagSynonym{"-f", "--follow", "--follow"},
    FlagSynonym{"-u", "--user", "--user"},
    FlagSynonym{"-j", "--json", "--json"},
    FlagSynonym{"-w", "--watch", "--watch"},
    FlagSynonym{"-m", "--mem", "--mem"},
    FlagSynonym{"-t", "--time", "--time"},
    FlagSynonym{"-g", "--gpu", "-n (how many) or --gpu (which)"},
};

bool looks_like_flag(std::string_view word) {
  return word.size() > 1 && word.starts_with('-');
}

}  // namespace

bool Option::is_flag(std::string_view word) const {
  return !is_argument() && (word == name || (!short_name.empty() && word == short_name));
}

std::vector<std::string> Option::choices() const {
  if (type.find('|') == std::string::npos) return {};
  return split(type, '|');
}

std::string format_help_entry(std::string_view name, std::string_view help) {
  std::string text = fmt::format("  {}", name);
  text.resize(text.size() < kHelpColumn ? kHelpColumn : text.size(), ' ');
  if (name.size() + 2 >= kHelpColumn) text += '\n' + std::string(kHelpColumn, ' ');
  for (const char letter : help) {
    text += letter;
    if (letter == '\n') text.append(kHelpColumn, ' ');
  }
  return text + '\n';
}

Flags::Flags() {
  add("-h,--help", "", "Show this help", {}).value = Option::Value::none;
}

Option& Flags::add(const char* names, const char* type, const char* help, ValueParser parse) {
  Option option;
  const std::string_view all = names;
  const std::size_t comma = all.find(',');
  if (comma != std::string_view::npos) option.short_name = all.substr(0, comma);
  option.name = all.substr(comma == std::string_view::npos ? 0 : comma + 1);
  option.type = type;
  option.help = help;
  option.group = option.is_argument() && !group_.empty() ? "Arguments" : group_;
  option.parse = std::move(parse);
  return options_.emplace_back(std::move(option));
}

void Flags::add_flag(const char* names, bool& target, const char* help) {
  Option& option = add(names, "", help, [&target](std::string_view) -> Result<void> {
    target = true;
    return {};
  });
  option.value = Option::Value::none;
  option.repeatable = true;
}

void Flags::add_value(const char* names, const char* type, const char* help, ValueParser parse) {
  add(names, type, help, std::move(parse));
}

void Flags::add_text(const char* names, const char* type, const char* help, std::string& target) {
  add(names, type, help, store_in(target));
}

void Flags::add_repeated_value(const char* names, const char* type, const char* help,
                               ValueParser parse) {
  Option& option = add(names, type, help, std::move(parse));
  option.repeatable = true;
}

void Flags::add_choice(const char* names, const char* type, const char* help, std::string& target) {
  add(names, type, help,
      [words = split(type, '|'), &target](std::string_view text) -> Result<void> {
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
  Option& option = add(names, type, help, std::move(parse));
  option.value = Option::Value::optional;
}

void Flags::add_positionals(const char* name, const char* help, std::vector<std::string>& target) {
  Option& option = add(name, "", help, [&target](std::string_view text) -> Result<void> {
    target.emplace_back(text);
    return {};
  });
  option.repeatable = true;
}

void Flags::add_help_entry(const char* name, const char* type, const char* help) {
  add(name, type, help, {});
}

const Option* Flags::find(std::string_view name) const {
  const auto found = std::find_if(options_.begin(), options_.end(),
                                  [&](const Option& option) { return option.is_flag(name); });
  return found == options_.end() ? nullptr : &*found;
}

Result<void> Flags::store(Option& option, std::string_view text) {
  if (++option.times_given > 1 && !option.repeatable) {
    return fail(ErrorKind::usage,
                fmt::format("{}: given more than once; give it once", option.name));
  }
  const auto stored = option.parse(text);
  if (stored) return {};
  return fail(ErrorKind::usage, fmt::format("{}: {}", option.name, stored.error().message));
}

Result<void> Flags::parse_argument(std::string_view word) {
  const auto next = std::find_if(options_.begin(), options_.end(), [](const Option& option) {
    return option.is_argument() && option.parse && (option.repeatable || option.times_given == 0);
  });
  if (next == options_.end() && extra_arguments_ != nullptr) {
    extra_arguments_->emplace_back(word);
    return {};
  }
  if (next == options_.end()) {
    const std::string remedy =
        argument_remedy_.empty() ? fmt::format("see '{} --help'", usage_) : argument_remedy_;
    return fail(ErrorKind::usage,
                fmt::format("unexpected argument {}; {}", in_quotes(word), remedy));
  }
  return store(*next, word);
}

// "--mem?", or "-n (how many) or --gpu (which)?"; empty if no flag is similar.
std::string Flags::suggest_flag(std::string_view name) const {
  const std::string word = lower_case(name);
  for (const FlagSynonym& synonym : kFlagSynonyms) {
    if (synonym.word == word && find(synonym.flag) != nullptr)
      return fmt::format("{}?", synonym.suggestion);
  }
  constexpr std::size_t kShortFlag = 2;  // every -x resembles every -I
  std::vector<std::string> names;
  for (const Option& option : options_) {
    const bool is_offered = !option.is_argument() && !option.group.empty();
    if (is_offered && name.size() > kShortFlag && option.name.size() > kShortFlag)
      names.push_back(option.name);
  }
  const std::string similar = find_similar_word(name, names);
  return similar.empty() ? "" : similar + "?";
}

// The error for the flag `name`, which is a part of `word`.
Error Flags::unknown_flag_error(std::string_view word, std::string_view name) const {
  const std::string suggestion = suggest_flag(name);
  const bool follows_argument = std::any_of(
      options_.begin(), options_.end(),
      [](const Option& option) { return option.is_argument() && option.times_given > 0; });
  std::string remedy = fmt::format("'{} --help' lists the options", usage_);
  if (!suggestion.empty()) {
    remedy = fmt::format("did you mean {}", suggestion);
  } else if (follows_argument && !foreign_flag_remedy_.empty()) {
    remedy = foreign_flag_remedy_;
  }
  return {ErrorKind::usage, fmt::format("unknown option {}; {}", in_quotes(word), remedy)};
}

// Parses the flag at the front of `words`, and returns how many words it takes; 0: it is --help.
Result<std::size_t> Flags::parse_flag(std::span<const char* const> words) {
  const FlagWord flag = split_flag(words.front());
  const auto option = std::find_if(options_.begin(), options_.end(),
                                   [&](const Option& one) { return one.is_flag(flag.name); });
  if (option == options_.end())
    return tl::make_unexpected(unknown_flag_error(words.front(), flag.name));
  if (option->value == Option::Value::none) {
    if (flag.value) return fail(ErrorKind::usage, fmt::format("{} takes no value", option->name));
    if (!option->parse) return 0;
    TRY(store(*option, ""));
    return 1;
  }
  if (flag.value) {
    TRY(store(*option, *flag.value));
    return 1;
  }
  const bool is_required = option->value == Option::Value::required;
  if (words.size() > 1 && (is_required || !looks_like_flag(words[1]))) {
    TRY(store(*option, words[1]));
    return 2;
  }
  if (is_required) return fail(ErrorKind::usage, fmt::format("{} needs a value", option->name));
  TRY(store(*option, ""));
  return 1;
}

Result<Flags::Asked> Flags::parse(std::span<const char* const> words) {
  bool only_arguments = false;
  while (!words.empty()) {
    const std::string_view word = words.front();
    std::size_t used = 1;
    if (only_arguments || !looks_like_flag(word)) {
      TRY(parse_argument(word));
    } else if (word == "--") {
      only_arguments = true;
    } else {
      used = TRY(parse_flag(words));
      if (used == 0) return Asked::help;
    }
    words = words.subspan(used);
  }
  for (const Option& option : options_) {
    if (option.required && option.parse && option.times_given == 0)
      return fail(ErrorKind::usage,
                  fmt::format("{} is required; see '{} --help'", option.name, usage_));
  }
  if (check_) TRY(check_());
  return Asked::run;
}

std::string Flags::format_usage() const {
  std::string text = " [OPTIONS]";
  for (const Option& option : options_) {
    if (!option.is_argument() || option.group.empty()) continue;
    const bool many = option.repeatable || option.type == "...";
    const std::string name = option.name + (many ? "..." : "");
    text += option.required ? fmt::format(" {}", name) : fmt::format(" [{}]", name);
  }
  return text;
}

std::string Flags::format_help(std::string_view summary) const {
  std::string text = fmt::format("{}\nUsage: {}{}\n", summary, usage_, format_usage());
  std::vector<std::string> groups{"Arguments"};
  for (const Option& option : options_) {
    const bool known = std::find(groups.begin(), groups.end(), option.group) != groups.end();
    if (!known && !option.group.empty()) groups.push_back(option.group);
  }
  for (const std::string& group : groups) {
    std::string entries;
    for (const Option& option : options_) {
      if (option.group == group) entries += format_help_entry(format_name(option), option.help);
    }
    if (!entries.empty()) text += fmt::format("\n{}:\n{}", group, entries);
  }
  if (!footer_.empty()) text += fmt::format("\n{}\n", footer_);
  return text;
}

}  // namespace berth
