// The command `berth completion bash|zsh|fish`, which prints a completion script.
//
// The scripts ask `berth complete` what to offer (see complete.cpp), and hand the rest of the line
// to the shell's own completion where a command or a file follows. They run the berth of the PATH,
// never the path that the user types, which may be any file.
#include <memory>
#include <string>
#include <string_view>

#include "base/terminal.h"
#include "cli/command.h"

namespace berth {
namespace {

constexpr std::string_view kBashScript =
    R"bash(# Completion for bash: eval "$(berth completion bash)"
_berth() {
  local line=${COMP_LINE:0:COMP_POINT} blank piece word joined i
  local -a words=() first=() answer=()
  # Bash splits words at = and : (COMP_WORDBREAKS). Join the pieces: what no blank separates.
  for ((i = 0; i <= COMP_CWORD; i++)); do
    blank=${line%%[![:blank:]]*}
    line=${line#"$blank"}
    piece=${COMP_WORDS[i]}
    ((i == COMP_CWORD)) && piece=$line
    line=${line#"$piece"}
    if ((i == 0)) || [[ $blank ]]; then
      words+=("$piece")
      first+=("$i")
    else
      words[${#words[@]} - 1]+=$piece
    fi
  done
  mapfile -t answer < <(command berth complete -- "${words[@]}" 2>/dev/null)
  COMPREPLY=()
  case ${answer[0]-} in
    "command "*)
      i=${answer[0]#command }
      if declare -F _comp_command_offset >/dev/null; then
        _comp_command_offset "${first[i]}"
      elif declare -F _command_offset >/dev/null; then
        _command_offset "${first[i]}"
      elif ((i == ${#words[@]} - 1)); then
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -A command -A file -- "${words[i]}")
      else
        compopt -o default -o bashdefault
      fi
      ;;
    files) compopt -o default ;;
    words)
      joined=${words[${#words[@]} - 1]}
      [[ $piece == [=:] ]] && piece=
      for line in "${answer[@]:1}"; do
        word=${line%%$'\t'*}
        [[ $word == "$joined"* ]] || continue
        word=${word#"${joined%"$piece"}"}
        [[ $word == *[!A-Za-z0-9_.,:/=@%+-]* ]] && printf -v word %q "$word"
        COMPREPLY+=("$word")
      done
      ;;
  esac
}
complete -F _berth berth
)bash";

constexpr std::string_view kZshScript = R"zsh(#compdef berth
# Completion for zsh: eval "$(berth completion zsh)", after compinit
_berth() {
  local -a answer described
  local line
  local -i first
  answer=("${(@f)$(command berth complete -- "${(@Q)words[1,CURRENT-1]}" "$PREFIX" 2>/dev/null)}")
  case $answer[1] in
    command\ *)
      first=${answer[1]#command }
      shift $first words
      (( CURRENT -= first ))
      _normal
      ;;
    files)
      [[ $PREFIX == --*=* ]] && compset -P '*='
      _files
      ;;
    words)
      for line in "${(@)answer[2,-1]}"; do
        described+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
      done
      _describe berth described
      ;;
  esac
}
# Read from fpath this file is the function itself; read by eval it only defines it.
if [ "$funcstack[1]" = _berth ]; then _berth "$@"; else compdef _berth berth; fi
)zsh";

constexpr std::string_view kFishScript =
    R"fish(# Completion for fish: berth completion fish | source
function __berth_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l answer (command berth complete -- $words "$current" 2>/dev/null)
    switch "$answer[1]"
        case 'command *'
            set -l first (math (string replace 'command ' '' -- $answer[1]) + 1)
            set -l rest (string escape -- $words[$first..-1])
            complete -C (string join ' ' -- $rest "$current")
        case files
            set -l option (string match -r -- '^--[^=]+=' "$current")
            printf '%s\n' "$option"(__fish_complete_path (string replace -r -- '^--[^=]+=' '' "$current"))
        case words
            printf '%s\n' $answer[2..-1]
    end
end
complete -c berth -f -a '(__berth_complete)'
)fish";

}  // namespace

Action define_completion(Flags& command, const CommandContext& /*context*/) {
  auto shell = std::make_shared<std::string>();
  command.add_choice("SHELL", "bash|zsh|fish", "Shell that the script is for", *shell);
  command.require();
  command.set_footer(
      "To enable completion in every new shell:\n"
      "  bash   echo 'eval \"$(berth completion bash)\"' >> ~/.bashrc\n"
      "  zsh    echo 'eval \"$(berth completion zsh)\"' >> ~/.zshrc     (after compinit)\n"
      "  fish   berth completion fish > ~/.config/fish/completions/berth.fish");
  return [shell]() -> Result<int> {
    print(*shell == "bash" ? kBashScript : *shell == "zsh" ? kZshScript : kFishScript);
    return 0;
  };
}

}  // namespace berth
