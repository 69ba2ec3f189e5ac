// The hidden command `berth complete -- WORD…`, which the completion scripts of the shells call.
//
// The words are those of the command line up to the cursor; the first is the program, the last the
// word to complete, which may be empty. The first line of the output says what the shell offers:
//
//   words       the other lines, each "WORD<tab>DESCRIPTION"
//   files       names of files
//   command N   what it offers for the command line that begins with word N (from 0)
#include <algorithm>
#include <fmt/format.h>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/terminal.h"
#include "cli/command.h"
#include "cli/completion_values.h"

namespace berth {
namespace {

using CompletionWords = std::vector<CompletionWord>;

// The user waits for the answer to a key. A driver or server that does not answer ends the command.
constexpr unsigned kTimeLimitS = 10;

std::string format_words(CompletionWords words) {
  std::string text = "words\n";
  const CompletionWords safe = make_safe(std::move(words));
  for (const CompletionWord& word : safe)
    text += fmt::format("{}\t{}\n", word.text, word.description);
  return text;
}

std::string format_command(std::size_t first) {
  return fmt::format("command {}\n", first);
}

// The flags that can still be given.
CompletionWords flag_words(const Flags& flags, const std::set<const Option*>& given) {
  CompletionWords words;
  for (const Option& option : flags.options()) {
    if (option.is_argument() || option.group.empty()) continue;  // hidden from help, too
    if (option.repeatable || !given.contains(&option)) words.push_back({option.name, option.help});
  }
  return words;
}

// The values of an option or argument. `current` is the word to complete, and `before` what stands
// in front of the value in the same word ("--gpu=").
std::string complete_value(std::string_view command, const Option& option, std::string_view current,
                           std::string before) {
  CompletionWords words;
  for (std::string& choice : option.choices()) words.push_back({std::move(choice)});
  const CompletionSource source = find_completion_source(command, option.name, option.type);
  if (source.form == ValueForm::file) return "files\n";
  if (source.values != nullptr) words = source.values();
  const std::size_t comma = current.rfind(',');
  if (source.form == ValueForm::list && comma != std::string_view::npos) {
    const std::string earlier = fmt::format(",{},", current.substr(0, comma));
    std::erase_if(words, [&](const CompletionWord& word) {
      return earlier.find(fmt::format(",{},", word.text)) != std::string::npos;
    });
    before += current.substr(0, comma + 1);
  }
  for (CompletionWord& word : words) word.text.insert(0, before);
  return format_words(std::move(words));
}

// The words between the command's name and the word to complete.
struct EarlierWords {
  std::set<const Option*> given;
  const Option* waiting = nullptr;  // the option whose value is the word to complete
  std::vector<std::string_view> arguments;
  bool only_arguments = false;  // behind "--"
};

EarlierWords read_earlier_words(const Flags& flags, std::span<const char* const> words) {
  EarlierWords earlier;
  for (const std::string_view word : words) {
    if (earlier.waiting != nullptr) {
      earlier.waiting = nullptr;
    } else if (word == "--") {
      earlier.only_arguments = true;
    } else if (earlier.only_arguments || word.size() < 2 || word.front() != '-') {
      earlier.arguments.push_back(word);
    } else if (const Option* const option = flags.find(word.substr(0, word.find('=')))) {
      earlier.given.insert(option);
      const bool has_value = word.find('=') != std::string_view::npos;
      if (option->value == Option::Value::required && !has_value) earlier.waiting = option;
    }
  }
  return earlier;
}

// The argument that the next word without a flag is; nullptr: none is left.
const Option* next_argument(const Flags& flags, std::size_t arguments) {
  for (const Option& option : flags.options()) {
    if (!option.is_argument()) continue;
    if (option.repeatable || arguments == 0) return &option;
    --arguments;
  }
  return nullptr;
}

std::string complete_argument(const DeclaredCommand& declared, const EarlierWords& earlier,
                              std::string_view current) {
  const std::string_view name = declared.command.name;
  const Option* const argument = next_argument(declared.flags, earlier.arguments.size());
  if (argument == nullptr) return format_words(flag_words(declared.flags, earlier.given));
  Option expected = *argument;
  const char* const later = declared.command.later_arguments;
  if (later != nullptr && !earlier.arguments.empty()) expected.name = later;
  return complete_value(name, expected, current, "");
}

// `words` are those behind the program's name; `name` is the index of the command's name in them.
std::string complete_command(const DeclaredCommand& declared, std::span<const char* const> words,
                             std::size_t name) {
  const std::span<const char* const> before = words.subspan(name + 1, words.size() - name - 2);
  const std::string_view current = words.back();
  const TrailingCommand kind = declared.command.trailing;
  const std::size_t trailing = find_trailing_command(declared.flags, kind, before);
  if (trailing < before.size()) {
    const bool has_dashes = std::string_view(before[trailing]) == "--";
    if (kind == TrailingCommand::list_after_dashes) return format_command(words.size());
    return format_command(name + 2 + trailing + (has_dashes ? 1 : 0));
  }
  const EarlierWords earlier = read_earlier_words(declared.flags, before);
  if (earlier.waiting != nullptr)
    return complete_value(declared.command.name, *earlier.waiting, current, "");
  if (current.starts_with('-') && !earlier.only_arguments) {
    const std::size_t equals = current.find('=');
    if (equals == std::string_view::npos)
      return format_words(flag_words(declared.flags, earlier.given));
    const Option* const option = declared.flags.find(current.substr(0, equals));
    if (option == nullptr || option->value == Option::Value::none) return format_words({});
    return complete_value(declared.command.name, *option, current.substr(equals + 1),
                          std::string(current.substr(0, equals + 1)));
  }
  const Option* const argument = next_argument(declared.flags, 0);
  const bool has_choices = argument != nullptr && !argument->choices().empty();
  if (kind == TrailingCommand::from_first_word && !has_choices) return format_command(words.size());
  return complete_argument(declared, earlier, current);
}

std::string complete(std::span<const char* const> words, const CommandContext& context) {
  const std::string_view current = words.back();
  std::size_t name = 0;
  while (name + 1 < words.size() && words[name][0] == '-') ++name;
  if (name + 1 == words.size()) {
    if (!current.starts_with('-')) return format_words(list_commands());
    return format_words({{"--help", "Show this help"}, {"--version", "Show the version"}});
  }
  for (const DeclaredCommand& declared : context.commands) {
    const bool hidden = declared.command.group == CommandGroup::hidden;
    if (!hidden && declared.command.name == std::string_view(words[name]))
      return complete_command(declared, words, name);
  }
  return format_words({});
}

}  // namespace

Action define_complete(Flags& /*command*/, const CommandContext& context) {
  return [&context]() -> Result<int> {
    std::vector<const char*> words;
    for (const std::string& word : context.trailing_command) words.push_back(word.c_str());
    ::alarm(kTimeLimitS);
    if (words.size() > 1) print(complete(std::span(words).subspan(1), context));
    return 0;
  };
}

}  // namespace berth
