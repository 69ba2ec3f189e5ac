// The command `berth completion bash|zsh|fish`, which prints a completion script.
//
// The scripts are generated from the declared commands and flags, so that they are always complete.
// An option with a type name such as "a|b|c" completes to these words.
#include <CLI/CLI.hpp>
#include <algorithm>
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

std::vector<std::string> option_choices(const CLI::Option& option) {
  const std::string names = option.get_type_name();
  if (names.find('|') == std::string::npos) return {};
  return CLI::detail::split(names, '|');
}

// Every word that can follow `app`: commands, flags, and the words that its arguments accept.
std::vector<CompletionWord> completion_words(const CLI::App& app, const CLI::App& program) {
  std::vector<CompletionWord> words;
  const CLI::App& named = app.get_name() == "help" ? program : app;
  for (const CLI::App* sub : named.get_subcommands({})) {
    words.push_back({sub->get_name(), sub->get_description()});
  }
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;  // hidden from help, too
    const std::string description = join_lines(option->get_description());
    for (const std::string& choice : option_choices(*option)) {
      words.push_back({choice, description});
    }
    for (const std::string& name : option->get_lnames()) {
      words.push_back({fmt::format("--{}", name), description});
    }
  }
  return words;
}

std::string join_words(const std::vector<CompletionWord>& words) {
  return join_text(words, " ", &CompletionWord::text);
}

std::string bash_script(const CLI::App& program) {
  std::string names;
  std::string cases;
  for (const CLI::App* command : program.get_subcommands({})) {
    names += (names.empty() ? "" : "|") + command->get_name();
    cases += fmt::format("    {}) words={} ;;\n", command->get_name(),
                         single_quote(join_words(completion_words(*command, program))));
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
      names, cases, single_quote(join_words(completion_words(program, program))));
}

// "word:description" for _describe, where a colon in the word would end it.
std::string zsh_words(const std::vector<CompletionWord>& words) {
  std::string out;
  for (const CompletionWord& word : words) {
    out += fmt::format("\n      {}", single_quote(word.text + ":" + word.description));
  }
  return out;
}

std::string zsh_script(const CLI::App& program) {
  std::string cases;
  for (const CLI::App* command : program.get_subcommands({})) {
    cases += fmt::format("    {}) words_here=({}) ;;\n", command->get_name(),
                         zsh_words(completion_words(*command, program)));
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
      cases, zsh_words(completion_words(program, program)));
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

std::string fish_script(const CLI::App& program) {
  std::string out =
      "# Completion for fish: berth completion fish | source\n"
      "complete -c berth -f\n";
  out += fish_lines(completion_words(program, program), "__fish_use_subcommand");
  for (const CLI::App* command : program.get_subcommands({})) {
    out += fish_lines(completion_words(*command, program),
                      fmt::format("__fish_seen_subcommand_from {}", command->get_name()));
  }
  return out;
}

}  // namespace

Action define_completion(Flags& command, const CommandContext& context) {
  auto shell = std::make_shared<std::string>();
  command.add_choice("SHELL", "bash|zsh|fish", "Shell that the script is for", *shell);
  command.parser().get_option("SHELL")->required();
  command.set_footer(
      "To enable completion in every new shell:\n"
      "  bash   echo 'eval \"$(berth completion bash)\"' >> ~/.bashrc\n"
      "  zsh    echo 'eval \"$(berth completion zsh)\"' >> ~/.zshrc     (after compinit)\n"
      "  fish   berth completion fish > ~/.config/fish/completions/berth.fish");
  return [shell, &program = context.program]() -> Result<int> {
    const std::string script = *shell == "bash"  ? bash_script(program)
                               : *shell == "zsh" ? zsh_script(program)
                                                 : fish_script(program);
    print(script);
    return 0;
  };
}

}  // namespace berth
