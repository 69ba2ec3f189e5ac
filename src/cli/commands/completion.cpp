// The command `berth completion bash|zsh|fish`, which prints a completion script.
//
// The scripts are generated from the declared commands and flags, so that they are always complete.
// An option with a type name such as "a|b|c" completes to these words.
#include <algorithm>
#include <deque>
#include <fmt/format.h>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/shell.h"
#include "base/terminal.h"
#include "base/text.h"
#include "cli/command.h"

namespace berth {
namespace {

struct CompletionWord {
  std::string text;
  std::string description;  // one line
};

// The help text without its line breaks, which a shell would show in its list of completions.
std::string join_lines(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

using DeclaredCommands = std::deque<DeclaredCommand>;

std::vector<CompletionWord> command_names(const DeclaredCommands& commands) {
  std::vector<CompletionWord> words;
  for (const DeclaredCommand& declared : commands) {
    words.push_back({declared.command.name, declared.command.summary});
  }
  return words;
}

// Every word that can follow "berth": the commands and the flags of the program itself.
std::vector<CompletionWord> program_words(const DeclaredCommands& commands) {
  auto words = command_names(commands);
  words.push_back({"--help", "Show this help"});
  words.push_back({"--version", "Show the version"});
  return words;
}

// Every word that can follow a command: flags, and the words that its arguments accept.
std::vector<CompletionWord> command_words(const DeclaredCommand& declared,
                                          const DeclaredCommands& commands) {
  const bool is_help = std::string_view(declared.command.name) == "help";
  auto words = is_help ? command_names(commands) : std::vector<CompletionWord>{};
  for (const Option& option : declared.flags.options()) {
    if (option.group.empty()) continue;  // hidden from help, too
    const std::string description = join_lines(option.help);
    for (const std::string& choice : option.choices()) words.push_back({choice, description});
    if (option.name.starts_with("--")) words.push_back({option.name, description});
  }
  return words;
}

std::string join_words(const std::vector<CompletionWord>& words) {
  return join_text(words, " ", &CompletionWord::text);
}

std::string bash_script(const DeclaredCommands& commands) {
  std::string names;
  std::string cases;
  for (const DeclaredCommand& declared : commands) {
    names += fmt::format("{}{}", names.empty() ? "" : "|", declared.command.name);
    cases += fmt::format("    {}) words={} ;;\n", declared.command.name,
                         single_quote(join_words(command_words(declared, commands))));
  }
  return fmt::format(
      "# Completion for bash: eval \"$(berth completion bash)\"\n"
      "_berth() {{\n"
      "  local word command= words\n"
      "  for word in \"${{COMP_WORDS[@]:1:COMP_CWORD-1}}\"; do\n"
      "    case $word in {}) command=$word; break ;; esac\n"
      "  done\n"
      "  case $command in\n"
      "{}"
      "    *) words={} ;;\n"
      "  esac\n"
      "  COMPREPLY=($(compgen -W \"$words\" -- \"${{COMP_WORDS[COMP_CWORD]}}\"))\n"
      "}}\n"
      "complete -o default -F _berth berth\n",
      names, cases, single_quote(join_words(program_words(commands))));
}

// "word:description" for _describe, where a colon in the word would end it.
std::string zsh_words(const std::vector<CompletionWord>& words) {
  std::string out;
  for (const CompletionWord& word : words) {
    out += fmt::format("\n      {}", single_quote(word.text + ":" + word.description));
  }
  return out;
}

std::string zsh_script(const DeclaredCommands& commands) {
  std::string cases;
  for (const DeclaredCommand& declared : commands) {
    cases += fmt::format("    {}) words_here=({}) ;;\n", declared.command.name,
                         zsh_words(command_words(declared, commands)));
  }
  return fmt::format(
      "#compdef berth\n"
      "# Completion for zsh: eval \"$(berth completion zsh)\", after compinit\n"
      "_berth() {{\n"
      "  local -a words_here\n"
      "  local command=\n"
      "  (( CURRENT > 2 )) && command=${{words[2]}}\n"
      "  case $command in\n"
      "{}"
      "    *) words_here=({}) ;;\n"
      "  esac\n"
      "  _describe berth words_here || _default\n"
      "}}\n"
      "# Read from fpath this file is the function itself; read by eval it only defines it.\n"
      "if [ \"$funcstack[1]\" = _berth ]; then _berth \"$@\"; else compdef _berth berth; fi\n",
      cases, zsh_words(program_words(commands)));
}

std::string fish_lines(const std::vector<CompletionWord>& words, std::string_view condition) {
  std::string out;
  for (const CompletionWord& word : words) {
    const bool flag = word.text.starts_with("--");
    out += fmt::format("complete -c berth -n {} {} {} -d {}\n", single_quote(condition),
                       flag ? "-l" : "-a",
                       single_quote(std::string_view(word.text).substr(flag ? 2 : 0)),
                       single_quote(word.description));
  }
  return out;
}

std::string fish_script(const DeclaredCommands& commands) {
  std::string out =
      "# Completion for fish: berth completion fish | source\n"
      "complete -c berth -f\n";
  out += fish_lines(program_words(commands), "__fish_use_subcommand");
  for (const DeclaredCommand& declared : commands) {
    out += fish_lines(command_words(declared, commands),
                      fmt::format("__fish_seen_subcommand_from {}", declared.command.name));
  }
  return out;
}

}  // namespace

Action define_completion(Flags& command, const CommandContext& context) {
  auto shell = std::make_shared<std::string>();
  command.add_choice("SHELL", "bash|zsh|fish", "Shell that the script is for", *shell);
  command.require();
  command.set_footer(
      "To enable completion in every new shell:\n"
      "  bash   echo 'eval \"$(berth completion bash)\"' >> ~/.bashrc\n"
      "  zsh    echo 'eval \"$(berth completion zsh)\"' >> ~/.zshrc     (after compinit)\n"
      "  fish   berth completion fish > ~/.config/fish/completions/berth.fish");
  return [shell, &commands = context.commands]() -> Result<int> {
    const std::string script = *shell == "bash"  ? bash_script(commands)
                               : *shell == "zsh" ? zsh_script(commands)
                                                 : fish_script(commands);
    print(script);
    return 0;
  };
}

}  // namespace berth
