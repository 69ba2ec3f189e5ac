// Translates the arguments of tools into command lines; see tools.h.
#include "mcp/tools.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <optional>
#include <utility>

#include "base/text.h"

namespace berth::mcp {
namespace {

constexpr const char* kDefaultLogLines = "--lines=200";

Json string_property(const char* description) {
  return {{"type", "string"}, {"description", description}};
}

Json integer_property(const char* description) {
  return {{"type", "integer"}, {"minimum", 1}, {"description", description}};
}

Json flag_property(const char* description) {
  return {{"type", "boolean"}, {"description", description}};
}

Json strings_property(const char* description) {
  return {{"type", "array"}, {"items", {{"type", "string"}}}, {"description", description}};
}

Json preview_property() {
  return flag_property("Only show the command that would run; change nothing");
}

Error type_error(std::string_view name, const char* expected) {
  return {ErrorKind::usage, fmt::format("the argument {} is not {}", in_quotes(name), expected)};
}

// Reads the arguments of one call. Values never become flags: each follows its flag after "=", or
// stands behind "--".
class Arguments {
 public:
  Arguments(const Json& json, Words words) : json_(json), words_(std::move(words)) {}

  Result<void> add_value(const char* name, const char* flag) {
    const Json* const value = given(name);
    if (value == nullptr) return {};
    if (const auto number = value->as_integer()) {
      words_.push_back(fmt::format("{}={}", flag, *number));
      return {};
    }
    const std::string* const text = value->as_string();
    if (text == nullptr) return tl::make_unexpected(type_error(name, "a text or a number"));
    words_.push_back(fmt::format("{}={}", flag, *text));
    return {};
  }

  // Of an argument that the command does not get.
  Result<void> check_text(const char* name) {
    const Json* const value = given(name);
    if (value != nullptr && value->as_string() == nullptr)
      return tl::make_unexpected(type_error(name, "a text"));
    return {};
  }

  Result<void> add_flag(const char* name, const char* flag) {
    const Json* const value = given(name);
    if (value == nullptr) return {};
    const auto set = value->as_bool();
    if (!set) return tl::make_unexpected(type_error(name, "true or false"));
    if (*set) words_.emplace_back(flag);
    return {};
  }

  // The id of a job, which cannot look like a flag.
  Result<void> add_id(const char* name) {
    const Json* const value = given(name);
    const std::string* const text = value == nullptr ? nullptr : value->as_string();
    if (text == nullptr || text->empty() || text->starts_with('-'))
      return tl::make_unexpected(type_error(name, "the id of a job"));
    words_.push_back(*text);
    return {};
  }

  Result<void> add_command(const char* name) {
    const Json* const value = given(name);
    const Json::Array* const list = value == nullptr ? nullptr : value->as_array();
    if (list == nullptr || list->empty())
      return tl::make_unexpected(type_error(name, "a list of texts, the program first"));
    words_.emplace_back("--");
    for (const Json& item : *list) {
      const std::string* const text = item.as_string();
      if (text == nullptr)
        return tl::make_unexpected(type_error(name, "a list of texts, the program first"));
      words_.push_back(*text);
    }
    return {};
  }

  Words release() { return std::move(words_); }

 private:
  const Json* given(const char* name) const {
    const Json* const value = json_.find(name);
    return value == nullptr || value->is_null() ? nullptr : value;
  }

  const Json& json_;
  Words words_;
};

Json all_hosts_properties() {
  return {{"all", flag_property("All hosts that share the harbour")}};
}

Result<Words> all_hosts_words(const Json& json, const char* command) {
  Arguments arguments(json, {command, "--json"});
  TRY(arguments.add_flag("all", "--all"));
  return arguments.release();
}

Json jobs_properties() {
  return {{"all", flag_property("Also the jobs of other users")},
          {"since", string_property("How far back ended jobs are listed, such as 2h or 7d")}};
}

Result<Words> jobs_words(const Json& json) {
  Arguments arguments(json, {"jobs", "--json"});
  TRY(arguments.add_flag("all", "--all"));
  TRY(arguments.add_value("since", "--since"));
  return arguments.release();
}

Json id_properties() {
  return {{"id", string_property("Id of the job")}};
}

Result<Words> explain_words(const Json& json) {
  Arguments arguments(json, {"jobs", "--all", "--json"});
  TRY(arguments.add_id("id"));
  return arguments.release();
}

Json logs_properties() {
  Json properties = id_properties();
  properties["lines"] = integer_property("How many of the last lines (default: 200)");
  return properties;
}

Result<Words> logs_words(const Json& json) {
  const Json* const lines = json.find("lines");
  const bool is_given = lines != nullptr && !lines->is_null();
  Arguments arguments(json, is_given ? Words{"logs"} : Words{"logs", kDefaultLogLines});
  TRY(arguments.add_value("lines", "--lines"));
  TRY(arguments.add_id("id"));
  return arguments.release();
}

Json wait_properties() {
  Json properties = id_properties();
  properties["timeout"] = string_property("How long to wait at most, such as 90s or 10m");
  return properties;
}

Result<Words> wait_words(const Json& json) {
  Arguments arguments(json, {"wait", "--json"});
  TRY(arguments.add_value("timeout", "--timeout"));
  TRY(arguments.add_id("id"));
  return arguments.release();
}

Json report_properties() {
  return {{"since", string_property("Begin of the time that is reported, such as 7d")}};
}

Result<Words> report_words(const Json& json) {
  Arguments arguments(json, {"report", "--json"});
  TRY(arguments.add_value("since", "--since"));
  return arguments.release();
}

Json submit_properties() {
  return {
      {"command", strings_property("The program and its arguments; no shell is involved")},
      {"count", integer_property("Number of GPUs (default: 1)")},
      {"mem", string_property("Memory on each GPU, such as 8GiB, or auto; without it the job "
                              "has whole GPUs")},
      {"gpu", string_property("Only these GPUs: indices or UUIDs, such as 0,2-3")},
      {"name", string_property("Only GPUs whose name contains this text")},
      {"time", string_property("Expected run time, such as 2h")},
      {"label", string_property("Text shown next to the job")},
      {"after", string_property("Ids of jobs that must succeed before, such as k3f9a2mx,b2c3d4e5")},
      {"begin", string_property("Not before this time, such as 18:00 or 2h")},
      {"cwd", string_property("Folder in which the job starts (default: that of this server)")},
      {"preview", preview_property()}};
}

Result<Words> submit_words(const Json& json) {
  Arguments arguments(json, {"run", "--detach"});
  for (const auto& [name, flag] :
       {std::pair{"count", "--count"}, std::pair{"mem", "--mem"}, std::pair{"gpu", "--gpu"},
        std::pair{"name", "--name"}, std::pair{"time", "--time"}, std::pair{"label", "--label"},
        std::pair{"after", "--after"}, std::pair{"begin", "--begin"}}) {
    TRY(arguments.add_value(name, flag));
  }
  TRY(arguments.check_text("cwd"));
  TRY(arguments.add_command("command"));
  return arguments.release();
}

Json cancel_properties() {
  Json properties = id_properties();
  properties["preview"] = preview_property();
  return properties;
}

Result<Words> cancel_words(const Json& json) {
  Arguments arguments(json, {"cancel"});
  TRY(arguments.add_id("id"));
  return arguments.release();
}

}  // namespace

std::span<const AgentTool> tools() {
  using enum Output;
  static const std::vector<AgentTool> table{
      {"status",
       "The GPUs of this host: state, memory, load, leases and processes",
       false,
       json,
       all_hosts_properties,
       {},
       [](const Json& given) { return all_hosts_words(given, "status"); }},
      {"queue",
       "The waiting tickets in their order, why each waits, and when it is expected to start",
       false,
       json,
       all_hosts_properties,
       {},
       [](const Json& given) { return all_hosts_words(given, "queue"); }},
      {"jobs",
       "The jobs of this user: held, waiting, running and recently ended",
       false,
       json,
       jobs_properties,
       {},
       jobs_words},
      {"explain",
       "One job: its state, why it waits, its GPUs and its exit code",
       false,
       json,
       id_properties,
       {"id"},
       explain_words},
      {"logs",
       "The last lines of the output of a detached job",
       false,
       text,
       logs_properties,
       {"id"},
       logs_words},
      {"wait",
       "Wait until a job has ended, and show its exit code",
       false,
       json,
       wait_properties,
       {"id"},
       wait_words},
      {"report",
       "GPU-hours, waiting time and idle time by user and job",
       false,
       json,
       report_properties,
       {},
       report_words},
      {"submit",
       "Start a job that waits for GPUs and runs detached; returns its id",
       true,
       job_id,
       submit_properties,
       {"command"},
       submit_words},
      {"cancel",
       "Remove a job from the queue, or end it if it runs",
       true,
       text,
       cancel_properties,
       {"id"},
       cancel_words},
  };
  return table;
}

const AgentTool* find_tool(std::string_view name) {
  const auto found = std::find_if(tools().begin(), tools().end(),
                                  [&](const AgentTool& tool) { return name == tool.name; });
  return found == tools().end() ? nullptr : &*found;
}

Json describe_tool(const AgentTool& tool) {
  Json required = Json::array();
  for (const std::string_view name : tool.required) required.push_back(name);
  return {{"name", tool.name},
          {"description", tool.description},
          {"inputSchema",
           {{"type", "object"},
            {"properties", tool.properties()},
            {"required", std::move(required)},
            {"additionalProperties", false}}},
          {"annotations", {{"readOnlyHint", !tool.changes}, {"destructiveHint", tool.changes}}}};
}

Result<Words> make_command_line(const AgentTool& tool, const Json& arguments) {
  const Json::Object* const members = arguments.as_object();
  if (members == nullptr) return fail(ErrorKind::usage, "the arguments are not an object");
  const Json properties = tool.properties();
  for (const Json::Member& member : *members) {
    if (properties.find(member.key) == nullptr) {
      return fail(ErrorKind::usage,
                  fmt::format("{} has no argument {}", tool.name, in_quotes(member.key)));
    }
  }
  const Json* const preview = arguments.find("preview");
  if (preview != nullptr && !preview->is_null() && !preview->as_bool())
    return fail(ErrorKind::usage, "the argument 'preview' is not true or false");
  Words words = TRY(tool.make_words(arguments));
  const auto has_nul = [](const std::string& word) { return word.find('\0') != std::string::npos; };
  if (std::any_of(words.begin(), words.end(), has_nul) || has_nul(find_folder(arguments)))
    return fail(ErrorKind::usage, "an argument contains a NUL character");
  return words;
}

std::string find_folder(const Json& arguments) {
  const Json* const value = arguments.find("cwd");
  const std::string* const text = value == nullptr ? nullptr : value->as_string();
  return text == nullptr ? std::string() : *text;
}

bool is_preview(const Json& arguments) {
  const Json* const value = arguments.find("preview");
  return value != nullptr && value->as_bool().value_or(false);
}

}  // namespace berth::mcp
