// The command `berth compat NAME [ARG…]`, which runs a command of an older tool.
//
// The commands of older tools are part of berth's Python package. This finds a Python that has the
// package, and execs it. It does not fork: a tool that leases for its caller must be the caller's
// own child process.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

#include "base/environment.h"
#include "base/file_trust.h"
#include "base/process.h"
#include "base/terminal.h"
#include "base/text.h"
#include "cli/command.h"
#include "run/job.h"

namespace berth {
namespace {

namespace fs = std::filesystem;

struct Tool {
  std::string_view name;
  std::string_view module;    // of the package berth.compat
  std::string_view function;  // reads sys.argv, returns the exit code
  std::string_view summary;
};

constexpr std::array kTools{
    Tool{"gpuselect", "gpuselect", "main", "gpuselect: choose GPUs, and run a command on them"},
    Tool{"gpuget", "gpuget", "main", "GPUGET: lease a GPU for the calling shell"},
    Tool{"GPU.py", "gpuget", "main", "the same as gpuget, under its original name"},
    Tool{"grn-start", "_grn_commands", "start", "GRN: show the GPUs until Ctrl-C"},
    Tool{"grn-run", "_grn_commands", "run", "GRN: run commands, each on its own GPU"},
};

// Does not import from the current folder: a module called berth there may be anything.
constexpr std::string_view kLauncherCode =
    "import sys\n"
    "sys.path[:] = [folder for folder in sys.path if folder]\n"
    "del sys.argv[0]\n"
    "try:\n"
    "    from berth.compat.{0} import {1} as command\n"
    "except ImportError as problem:\n"
    "    if (problem.name or '').partition('.')[0] != 'berth':\n"
    "        raise\n"
    "    import os\n"
    "    why = 'has no Python package berth; install it there'\n"
    "    if not isinstance(problem, ModuleNotFoundError):\n"
    "        files = os.listdir(os.path.dirname(problem.path or '') or '.')\n"
    "        built = [f.split('-')[1] for f in files if f.startswith('_native.cpython-')]\n"
    "        if not built or any(tag in sys.implementation.cache_tag for tag in built):\n"
    "            raise\n"
    "        why = 'is Python %d.%d, and its package berth was built for 3.%s; install it there' % "
    "(\n"
    "            *sys.version_info[:2], built[0][1:])\n"
    "    print('berth: compat: ' + sys.executable + ' ' + why + ', or put a Python that has it '\n"
    "          'first in the PATH', file=sys.stderr)\n"
    "    sys.exit(127)\n"
    "sys.exit(command())\n";

std::string format_tool_list() {
  std::string text = "Commands of older tools, with leases from berth:\n";
  for (const Tool& tool : kTools) text += fmt::format("  {:<12}{}\n", tool.name, tool.summary);
  return text +
         "\nAll words after NAME belong to that command; see 'berth compat NAME --help'.\n"
         "If a script calls the command by its name alone, put a file of that name into the PATH:\n"
         "  #!/bin/sh\n"
         "  exec berth compat GPU.py \"$@\"\n";
}

// The Python of the virtual environment or prefix that berth is installed in; else that of the
// PATH.
std::string find_python(const std::string& program) {
  const std::string beside = (fs::path(program).parent_path() / "python3").string();
  const bool ours = ::access(beside.c_str(), X_OK) == 0 && !describe_trust_problem(program, beside);
  return ours ? beside : "python3";
}

// In a build tree, the package is in the folder python, beside bin.
void add_build_tree_to_python_path(const std::string& program) {
  const fs::path packages = fs::path(program).parent_path().parent_path() / "python";
  const fs::path module = packages / "berth" / "__init__.py";
  std::error_code ignored;
  if (!fs::exists(module, ignored) || describe_trust_problem(program, module)) return;
  const std::string_view before = get_env_or_empty("PYTHONPATH");
  const std::string value =
      before.empty() ? packages.string() : fmt::format("{}:{}", packages.string(), before);
  ::setenv("PYTHONPATH", value.c_str(), 1);
}

// Returns only if it fails.
Result<int> exec_tool(const Tool& tool, const std::vector<std::string>& words) {
  const std::string program = executable_path();
  const std::string python = find_python(program);
  if (const auto problem = check_program(python)) {
    print_message(fmt::format("compat: {}", problem->message));
    return problem->code;
  }
  add_build_tree_to_python_path(program);
  std::vector<std::string> arguments{
      python, "-c", fmt::format(fmt::runtime(kLauncherCode), tool.module, tool.function)};
  arguments.insert(arguments.end(), words.begin(), words.end());
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  std::fflush(nullptr);
  ::execvp(argv[0], argv.data());
  print_message(
      fmt::format("compat: {} cannot be run: {}", in_quotes(python), std::strerror(errno)));
  return kExitNotRunnable;
}

Result<int> run(const std::vector<std::string>& words) {
  if (words.empty()) {
    print(format_tool_list());
    return 0;
  }
  const auto tool = std::find_if(kTools.begin(), kTools.end(),
                                 [&](const Tool& one) { return one.name == words.front(); });
  if (tool == kTools.end()) {
    return fail(
        ErrorKind::usage,
        fmt::format("compat: {} is not a command of an older tool; 'berth compat' lists them",
                    in_quotes(words.front())));
  }
  return exec_tool(*tool, words);
}

}  // namespace

Action define_compat(Flags& command, const CommandContext& context) {
  command.add_help_entry("NAME", "gpuselect|gpuget|GPU.py|grn-start|grn-run", "Command to run");
  command.require();
  command.add_help_entry("ARG", "...", "Flags and arguments of that command");
  command.set_footer(format_tool_list().c_str());
  return [&context]() { return run(context.trailing_command); };
}

}  // namespace berth
