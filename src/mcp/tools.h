// The tools that `berth mcp` offers: each is one call of a berth command.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace berth::mcp {

// The arguments of a berth command, such as {"queue", "--json"}.
using Words = std::vector<std::string>;

// What the command prints on stdout if it succeeds.
enum class Output : std::uint8_t { text, json, job_id };

struct AgentTool {
  const char* name;
  const char* description;
  bool changes;  // something for other processes; only with --allow-changes
  Output output;
  // The properties of the tool's arguments, as JSON Schema.
  Json (*properties)();
  std::vector<std::string_view> required;
  // ErrorKind::usage: an argument is missing or has the wrong type.
  Result<Words> (*make_words)(const Json& arguments);
};

std::span<const AgentTool> tools();
const AgentTool* find_tool(std::string_view name);

// An entry of tools/list.
Json describe_tool(const AgentTool& tool);

// The berth command of a call. ErrorKind::usage: an argument is unknown, missing or wrong.
Result<Words> make_command_line(const AgentTool& tool, const Json& arguments);

// The folder in which the command of a call runs: the argument "cwd"; "" is that of the server.
std::string find_folder(const Json& arguments);

// Whether the call is only to be shown: the argument "preview" of tools that change something.
bool is_preview(const Json& arguments);

}  // namespace berth::mcp
