// Derives job types from commands; see job_type.h.
#include "profile/job_type.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fmt/format.h>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

#include "base/configuration.h"
#include "base/process.h"
#include "base/read_file.h"
#include "base/sha1.h"
#include "base/text.h"

namespace berth {
namespace {

using Words = std::vector<std::string>;

constexpr std::size_t kMaxTextBytes = 200;

std::string base_name(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

// Versions of Python do not count: "python3.11" and "python" have the same name.
std::string program_name(const std::string& word) {
  std::string name = base_name(word);
  if (name.starts_with("python")) {
    const auto rest = name.find_first_not_of("0123456789.", std::string_view("python").size());
    if (rest == std::string::npos) return "python";
  }
  return name;
}

// The absolute path of a file, so that `train.py` of two projects gives two types; nullopt if the
// word is not a file.
std::optional<std::string> file_path(const std::string& word) {
  struct stat status {};
  if (word.empty() || ::stat(word.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) {
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

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

bool is_shell(const std::string& program) {
  return is_one_of(program, {"sh", "bash", "dash", "zsh", "ksh", "fish"});
}

bool is_number(std::string_view word) {
  return !word.empty() && word.find_first_not_of("0123456789") == std::string_view::npos;
}

// Commands that only prepare the work, and words of the shell that are not commands. A number is a
// part of an expression or a pattern that split_commands() has taken for a command.
bool is_setup_command(const std::string& program) {
  return is_one_of(program,
                   {"cd",    "export", "source", ".",     "set",      "ulimit", "module", "echo",
                    "mkdir", "sleep",  "conda",  "mamba", "umask",    "test",   "[",      "[[",
                    "true",  ":",      "unset",  "trap",  "printf",   "date",   "for",    "case",
                    "done",  "select", "fi",     "esac",  "hostname", "}",      "exit",   "return",
                    "wait",  "read",   "shift",  "break", "continue", "false"}) ||
         is_number(program);
}

// Words of the shell that precede a command.
bool is_shell_keyword(const std::string& word) {
  return is_one_of(word, {"if", "then", "else", "elif", "while", "until", "do", "!", "{"});
}

// Programs whose arguments, and not a file, determine what runs: the whole command is the type.
bool is_launcher(const std::string& program) {
  return is_one_of(program,
                   {"docker", "podman", "nerdctl", "apptainer", "singularity", "enroot", "make"});
}

// A program that runs the command that follows it.
struct Wrapper {
  std::string_view name;
  std::string_view value_flags{};       // letters of flags whose value is the next word
  std::string_view long_value_flags{};  // the same for long flags, separated by blanks
  std::size_t words_before_flags = 0;   // how many arguments stand before its flags
  std::size_t words_after_flags = 0;    // and after them
};

const Wrapper* find_wrapper(const Words& words) {
  static constexpr std::array wrappers{
      Wrapper{"env", "uC", "--unset --chdir"},
      Wrapper{"nice", "n", "--adjustment"},
      Wrapper{"nohup"},
      Wrapper{"time", "fo", "--format --output"},
      Wrapper{"exec", "a"},
      Wrapper{"stdbuf", "ioe", "--input --output --error"},
      Wrapper{"setsid"},
      Wrapper{"command"},
      Wrapper{"eval"},
      Wrapper{"timeout", "ks", "--kill-after --signal", 0, 1},
      Wrapper{"ionice", "cn", "--class --classdata"},
      Wrapper{"taskset", "", "", 0, 1},
      Wrapper{"numactl", "NCmip", "--cpunodebind --physcpubind --membind --interleave --preferred"},
      Wrapper{"conda", "np", "--name --prefix", 1},
      Wrapper{"mamba", "np", "--name --prefix", 1}};
  const std::string name = base_name(words.front());
  const auto* const found =
      std::find_if(wrappers.begin(), wrappers.end(),
                   [&](const Wrapper& wrapper) { return wrapper.name == name; });
  if (found == wrappers.end()) return nullptr;
  // "conda run" runs a command; "conda activate" does not.
  return found->words_before_flags > 0 && (words.size() < 2 || words[1] != "run") ? nullptr : found;
}

// Whether the value of a wrapper's flag is the next word.
bool takes_next_word(const Wrapper& wrapper, const std::string& flag) {
  if (!flag.starts_with("--"))
    return flag.size() == 2 && wrapper.value_flags.find(flag[1]) != std::string::npos;
  for (std::string_view rest = wrapper.long_value_flags; !rest.empty();) {
    if (take_word(rest) == flag) return true;
  }
  return false;
}

// Removes wrappers, assignments and shell keywords before the program.
Words strip_wrappers(Words words) {
  const auto drop = [&](std::size_t count) {
    count = std::min(count, words.size());
    words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(count));
  };
  while (!words.empty()) {
    if (is_assignment(words.front()) || is_shell_keyword(words.front())) {
      drop(1);
      continue;
    }
    const Wrapper* const wrapper = find_wrapper(words);
    if (wrapper == nullptr) break;
    drop(1 + wrapper->words_before_flags);
    while (!words.empty() && words.front().starts_with('-')) {
      drop(takes_next_word(*wrapper, words.front()) ? 2 : 1);
    }
    drop(wrapper->words_after_flags);
  }
  return words;
}

// Splits a line of shell into commands, each as its words. Implements only as much of the shell's
// grammar as is needed to find the programs. Redirections and comments are left out.
class CommandSplitter {
 public:
  explicit CommandSplitter(std::string_view line) : line_(line) {}

  std::vector<Words> split() {
    while (position_ < line_.size()) read_letter(line_[position_++]);
    end_word();
    return std::move(commands_);
  }

 private:
  bool next_is(std::string_view letters) const {
    return position_ < line_.size() && letters.find(line_[position_]) != std::string_view::npos;
  }

  void read_letter(char letter) {
    if (letter == '\'' || letter == '"') {
      read_quoted(letter);
    } else if (letter == '\\' && position_ < line_.size()) {
      add_letter(line_[position_++]);
    } else if (letter == '#' && !in_word_) {
      position_ = std::min(line_.size(), line_.find('\n', position_));
    } else if (letter == '>' || letter == '<' || (letter == '&' && next_is(">"))) {
      begin_redirection();
    } else if (letter == ' ' || letter == '\t') {
      end_word();
    } else if (kSeparators.find(letter) != std::string_view::npos) {
      end_word();
      is_target_ = false;
      if (!commands_.back().empty()) commands_.emplace_back();
    } else {
      add_letter(letter);
    }
  }

  void read_quoted(char quote) {
    in_word_ = true;
    while (position_ < line_.size() && line_[position_] != quote) word_ += line_[position_++];
    ++position_;
  }

  // Reads the rest of an operator such as ">", "2>&1", "&>>" or "<<<": the next word is its target.
  void begin_redirection() {
    if (is_number(word_)) {  // the descriptor
      word_.clear();
      in_word_ = false;
    }
    end_word();
    while (next_is("<>&|")) ++position_;
    is_target_ = !next_is("(");  // not in "<(command)"
  }

  void add_letter(char letter) {
    word_ += letter;
    in_word_ = true;
  }

  void end_word() {
    if (!in_word_) return;
    if (!is_target_) commands_.back().push_back(word_);
    is_target_ = false;
    in_word_ = false;
    word_.clear();
  }

  static constexpr std::string_view kSeparators = ";&|\n()";

  std::string_view line_;
  std::size_t position_ = 0;
  std::vector<Words> commands_ = std::vector<Words>(1);
  std::string word_;
  bool in_word_ = false;
  bool is_target_ = false;  // the word is the target of a redirection
};

std::vector<Words> split_commands(std::string_view line) {
  return CommandSplitter(line).split();
}

// Adds the number of GPUs, and escapes bytes that are not UTF-8: types are stored as JSON, and must
// be the same after reading.
std::string append_gpu_count(std::string_view name, unsigned count) {
  std::string type;
  while (!name.empty()) {
    const std::size_t length = utf8_length(name);
    if (length == 0) {
      type += fmt::format("\\x{:02x}", static_cast<unsigned char>(name.front()));
    } else {
      type += name.substr(0, length);
    }
    name.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return count == 1 ? type : fmt::format("{} on {} GPUs", type, count);
}

// Is the value of a flag, variable or option of this name probably a secret?
bool is_secret_name(std::string_view name) {
  const std::string lower = lower_case(name);
  constexpr std::array markers{"pass", "secret", "token", "key", "credential", "auth"};
  return std::any_of(markers.begin(), markers.end(),
                     [&](std::string_view part) { return lower.find(part) != std::string::npos; });
}

// Removes what stands between "://" and "@" in each URL.
std::string strip_url_passwords(std::string_view text) {
  std::string clean;
  for (;;) {
    const auto scheme = text.find("://");
    if (scheme == std::string_view::npos) return clean.append(text);
    clean.append(text.substr(0, scheme + 3));
    text.remove_prefix(scheme + 3);
    const std::string_view authority = text.substr(0, text.find_first_of("/?# \t\n'\""));
    const auto at = authority.rfind('@');
    if (at != std::string_view::npos) text.remove_prefix(at + 1);
  }
}

std::string short_hash(std::string_view text) {
  constexpr std::size_t kDigits = 16;
  return sha1(text).substr(0, kDigits);
}

// The words of all commands of a line of shell.
Words split_words(std::string_view line) {
  Words words;
  for (const Words& command : split_commands(line)) {
    words.insert(words.end(), command.begin(), command.end());
  }
  return words;
}

// Is the word more than a name or a value, such as the text of a program, a header or a message?
bool is_free_text(std::string_view word) {
  return word.find_first_of(" \t\n\v\f\r;&|()<>`'\"") != std::string_view::npos;
}

// Is it like "me:password"? "1000:1000" is not: that is a user and a group.
bool is_login(std::string_view value) {
  return value.find(':') != std::string_view::npos &&
         value.find_first_not_of("0123456789:") != std::string_view::npos;
}

// Is it a flag of a shell or of Python before a program's text, such as "-c" or "-lc"?
bool is_program_text_flag(std::string_view flag) {
  return flag.starts_with('-') && !flag.starts_with("--") && flag.ends_with('c');
}

// Removes secrets from the words of a command.
class SecretRemover {
 public:
  // Removes the values of variables and of flags that take secrets. A free text may contain a
  // secret that cannot be recognized, so a hash replaces it.
  Words clean(const Words& words) {
    for (std::size_t i = 0; i < words.size(); ++i) {
      const bool has_next = i + 1 < words.size();
      if (i > 0 && is_program_text_flag(words[i - 1]) && is_free_text(words[i])) {
        add_value(words[i]);  // add() would drop a text that begins with an assignment
      } else if (add(words[i], has_next ? &words[i + 1] : nullptr)) {
        ++i;
      }
    }
    return std::move(clean_);
  }

 private:
  // Returns true if the next word is a secret value of this one: the caller skips it.
  bool add(const std::string& word, const std::string* next) {
    if (is_assignment(word)) return false;
    const auto equals = word.find('=');
    const std::string name = word.substr(0, equals);
    if (!word.starts_with('-') || is_free_text(name)) {
      add_value(word);
      return false;
    }
    const bool has_value = equals != std::string::npos;
    const bool is_short = !word.starts_with("--");
    if (is_short && word.starts_with("-e") && has_value) return false;  // -eNAME=VALUE
    if (is_one_of(name, {"-e", "--env", "--build-arg", "-H", "--header"}) || is_secret_name(name)) {
      return !has_value;
    }
    if (is_one_of(name, {"-u", "--user"})) {
      const std::string_view value = has_value ? std::string_view(word).substr(equals + 1)
                                     : next    ? std::string_view(*next)
                                               : std::string_view();
      clean_.push_back(is_login(value) ? name : word);
      return is_login(value) && !has_value;
    }
    // -p takes a password in many programs, and is a flag without a value in others.
    if (is_short && word.starts_with("-p")) {
      clean_.emplace_back("-p");
      return word == "-p" && next != nullptr && !next->starts_with('-') && !file_path(*next);
    }
    add_value(word);
    return false;
  }

  void add_value(const std::string& word) {
    // Recognizable secrets are removed before hashing: another user could guess a short secret and
    // compare the hash.
    if (is_free_text(word)) {
      const Words words = split_words(word);
      const bool is_split = words != Words{word};  // each part is shorter, so the recursion ends
      const std::string text = is_split ? join_text(SecretRemover().clean(words), " ") : word;
      clean_.push_back(fmt::format("#{}", short_hash(text)));
      return;
    }
    const auto equals = word.rfind('=');
    const bool secret = equals != std::string::npos && is_secret_name(word.substr(0, equals));
    clean_.push_back(strip_url_passwords(secret ? word.substr(0, equals) : word));
  }

  Words clean_;
};

Words remove_secrets(const Words& words) {
  return SecretRemover().clean(words);
}

// Derives the type of one command.
class JobTypeBuilder {
 public:
  JobTypeBuilder(unsigned count, bool hidden) : count_(count), hidden_(hidden) {}

  JobType from_text(std::string_view text) const {
    const auto commands = split_commands(text);
    for (const Words& command : commands) {
      const Words words = strip_wrappers(command);
      if (!words.empty() && !is_setup_command(base_name(words.front()))) return from_words(words);
    }
    std::vector<std::string> clean;
    clean.reserve(commands.size());
    for (const Words& command : commands) clean.push_back(join_text(remove_secrets(command), " "));
    return from_whole_command("sh", join_text(clean, "; "));
  }

  // Uses the first argument that determines what runs: a module, a program's text, or a file.
  JobType from_words(const Words& words) const {
    if (is_assignment(words.front())) {
      return make("sh", words.front().substr(0, words.front().find('=')), "the variable");
    }
    const std::string program = program_name(words.front());
    if (is_launcher(program)) {
      return from_whole_command(program, join_text(remove_secrets(words), " "));
    }
    for (std::size_t i = 1; i < words.size(); ++i) {
      const std::string& word = words[i];
      const bool has_next = i + 1 < words.size();
      if (program == "python" && word == "-m" && has_next) {
        return make(program, fmt::format("{} -m {}", program, words[i + 1]),
                    "the program and its module");
      }
      if (is_shell(program) && is_program_text_flag(word) && has_next) {
        return from_text(words[i + 1]);
      }
      if (program == "python" && word == "-c" && has_next) return from_program_text(words[i + 1]);
      if (const auto file = file_path(word)) {
        return make(program, fmt::format("{} {}", program, *file), "the program and its script");
      }
    }
    return make(program, file_path(words.front()).value_or(program), "the program");
  }

 private:
  // The type of `python -c TEXT`. If the text sets values, or contains a quoted text or the name of
  // a secret, a hash replaces it: the text may contain a secret, and the hash still distinguishes
  // programs.
  JobType from_program_text(const std::string& text) const {
    const Words words = split_words(text);
    const bool has_secret = is_secret_name(text) || remove_secrets(words) != words;
    const std::string visible_text =
        has_secret ? fmt::format("#{}", short_hash(text)) : text.substr(0, kMaxTextBytes);
    return make("python", fmt::format("python -c {}", visible_text), "the program and its text");
  }

  // The type is the text of the command itself.
  JobType from_whole_command(const std::string& program, std::string_view text) const {
    return make(program, text.substr(0, kMaxTextBytes), "the text of the command");
  }

  JobType make(const std::string& program, std::string_view name, std::string derivation) const {
    if (!hidden_ || name == program) {
      return {append_gpu_count(name, count_), std::move(derivation)};
    }
    return {append_gpu_count(fmt::format("{} #{}", program, short_hash(name)), count_),
            fmt::format("{}, as a hash, because commands are hidden from other users here",
                        derivation)};
  }

  unsigned count_;
  bool hidden_;
};

}  // namespace

bool are_commands_hidden() {
  const auto settings = read_configuration();
  if (!settings) return true;
  if (settings->hides_commands) return *settings->hides_commands;
  return !read_hidepid_option().empty() || ::access("/proc/1/cmdline", R_OK) != 0;
}

std::string public_command(const Words& words, bool hidden) {
  if (hidden) return base_name(words.front());
  // The shell before a line of `berth batch` says nothing, and takes the room of the command.
  if (words.size() == 3 && words[0] == "/bin/sh" && words[1] == "-c") return words[2];
  return join_text(words, " ");
}

JobType derive_job_type(const Words& command, unsigned count, bool hidden) {
  const Words words = strip_wrappers(command);
  return JobTypeBuilder(count, hidden).from_words(words.empty() ? command : words);
}

JobType derive_line_job_type(std::string_view line, unsigned count, bool hidden) {
  return JobTypeBuilder(count, hidden).from_text(line);
}

JobType make_named_job_type(std::string_view name, unsigned count) {
  return {append_gpu_count(name, count), "the name given with --job"};
}

}  // namespace berth
