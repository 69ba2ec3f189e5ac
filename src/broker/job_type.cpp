// Deriving of types; see job_type.h.
#include "broker/job_type.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fmt/format.h>
#include <optional>
#include <sys/stat.h>

#include "base/text.h"

namespace berth {
namespace {

using Words = std::vector<std::string>;

constexpr std::size_t kLongestText = 200;

std::string base_name(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

bool is_shell(const std::string& program) {
  constexpr std::array shells{"sh", "bash", "dash", "zsh", "ksh", "fish"};
  return std::find(shells.begin(), shells.end(), program) != shells.end();
}

// "python3.11" and "python" run the same script.
std::string program_name(const std::string& word) {
  std::string name = base_name(word);
  if (name.starts_with("python")) {
    const auto rest = name.find_first_not_of("0123456789.", std::string_view("python").size());
    if (rest == std::string::npos) return "python";
  }
  return name;
}

// A file's whole path, so that `train.py` of two projects is two types; nothing if it is no file.
std::optional<std::string> file_path(const std::string& word) {
  struct stat about {};
  if (word.empty() || ::stat(word.c_str(), &about) != 0 || !S_ISREG(about.st_mode)) {
    return std::nullopt;
  }
  std::error_code problem;
  const auto path = std::filesystem::canonical(word, problem);
  return problem ? word : path.string();
}

bool is_assignment(const std::string& word) {
  const auto equals = word.find('=');
  if (equals == std::string::npos || equals == 0) return false;
  return std::all_of(
      word.begin(), word.begin() + static_cast<std::ptrdiff_t>(equals),
      [](unsigned char letter) { return std::isalnum(letter) != 0 || letter == '_'; });
}

// Commands that prepare, and do not do the work.
bool prepares(const std::string& program) {
  constexpr std::array kinds{"cd",   "export", "source", ".",     "set",    "ulimit", "module",
                             "echo", "mkdir",  "sleep",  "conda", "umask",  "test",   "[",
                             "true", ":",      "unset",  "trap",  "printf", "date",   "hostname"};
  return std::find(kinds.begin(), kinds.end(), program) != kinds.end();
}

// Programs that run the command line that follows them.
bool wraps(const std::string& program) {
  constexpr std::array kinds{"env", "nice", "nohup", "time", "exec", "stdbuf", "setsid", "command"};
  return std::find(kinds.begin(), kinds.end(), program) != kinds.end();
}

// Without what stands before the program itself.
Words bare(Words words) {
  bool wrapped = true;
  while (wrapped && !words.empty()) {
    while (!words.empty() && is_assignment(words.front())) words.erase(words.begin());
    wrapped = !words.empty() && wraps(base_name(words.front()));
    if (!wrapped) break;
    words.erase(words.begin());
    while (!words.empty() && words.front().starts_with('-')) words.erase(words.begin());
  }
  return words;
}

// The commands of a line of shell, each as its words. Not the whole of the shell's grammar: enough
// to see what programs it calls.
std::vector<Words> commands_of(std::string_view line) {
  std::vector<Words> commands(1);
  std::string word;
  bool in_word = false;
  const auto end_word = [&] {
    if (in_word) commands.back().push_back(word);
    word.clear();
    in_word = false;
  };
  char quote = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char letter = line[i];
    if (quote != 0) {
      if (letter == quote) {
        quote = 0;
      } else {
        word += letter;
      }
    } else if (letter == '\'' || letter == '"') {
      quote = letter;
      in_word = true;
    } else if (letter == '\\' && i + 1 < line.size()) {
      word += line[++i];
      in_word = true;
    } else if (letter == ' ' || letter == '\t') {
      end_word();
    } else if (std::string_view(";&|\n()").find(letter) != std::string_view::npos) {
      end_word();
      if (!commands.back().empty()) commands.emplace_back();
    } else {
      word += letter;
      in_word = true;
    }
  }
  end_word();
  return commands;
}

std::string with_count(std::string name, unsigned count) {
  return count == 1 ? name : fmt::format("{} on {} GPUs", name, count);
}

JobType of_words(const Words& words, unsigned count);

JobType of_text(std::string_view text, unsigned count) {
  for (const Words& command : commands_of(text)) {
    const Words words = bare(command);
    if (!words.empty() && !prepares(base_name(words.front()))) return of_words(words, count);
  }
  return {with_count(std::string(text.substr(0, kLongestText)), count), "the text of the command"};
}

// The first argument that says what runs: a module, a program's text, or a file.
JobType of_words(const Words& words, unsigned count) {
  const std::string program = program_name(words.front());
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string& word = words[i];
    const bool has_next = i + 1 < words.size();
    if (program == "python" && word == "-m" && has_next) {
      return {with_count(fmt::format("{} -m {}", program, words[i + 1]), count),
              "the program and its module"};
    }
    if (is_shell(program) && word.starts_with('-') && word.ends_with('c') && has_next) {
      return of_text(words[i + 1], count);
    }
    if (program == "python" && word == "-c" && has_next) {
      return {
          with_count(fmt::format("{} -c {}", program, words[i + 1].substr(0, kLongestText)), count),
          "the program and its text"};
    }
    if (const auto file = file_path(word)) {
      return {with_count(fmt::format("{} {}", program, *file), count),
              "the program and its script"};
    }
  }
  return {with_count(file_path(words.front()).value_or(program), count), "the program"};
}

}  // namespace

JobType derive_type(const Words& command, unsigned count) {
  const Words words = bare(command);
  return of_words(words.empty() ? command : words, count);
}

JobType derive_line_type(std::string_view line, unsigned count) {
  return of_text(line, count);
}

JobType named_type(std::string_view name, unsigned count) {
  return {with_count(std::string(name), count), "the name that was given (--job)"};
}

}  // namespace berth
