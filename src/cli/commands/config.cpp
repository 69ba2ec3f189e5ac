// The command `berth config [--json]`: each setting, its value, and where the value comes from.
#include <algorithm>
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/configuration.h"
#include "base/environment.h"
#include "base/json.h"
#include "base/quantity.h"
#include "base/terminal.h"
#include "base/text.h"
#include "cli/command.h"
#include "devices/driver.h"
#include "harbour/location.h"
#include "lease/request_options.h"
#include "profile/job_type.h"
#include "run/notify.h"

namespace berth {
namespace {

struct SettingRow {
  std::string name;
  Json value;          // a text or a list; null: not set, and there is no default
  std::string source;  // a variable, or a file; empty: the default
};

SettingRow variable_row(std::string name, const char* variable, Json value) {
  const bool is_set = !get_env_or_empty(variable).empty();
  return {std::move(name), std::move(value), is_set ? variable : ""};
}

// A command may contain a secret, and the URL of a webhook is one.
std::string show_notify_setting(std::string_view name, const std::string& value) {
  const bool is_secret = name == "command" || (name == "webhook" && !value.starts_with("file:"));
  return is_secret ? "set" : value;
}

void add_notify_rows(const NotifySettings& settings, std::vector<SettingRow>& rows) {
  for (const char* const name : {"mail", "webhook", "webhook_format", "command"}) {
    const auto found = settings.texts.find(name);
    const bool is_set = found != settings.texts.end();
    rows.push_back({fmt::format("notify.{}", name),
                    is_set ? Json(show_notify_setting(name, found->second.value)) : Json(),
                    is_set ? found->second.source : ""});
  }
  for (const char* const name : {"events", "always"}) {
    const auto found = settings.lists.find(name);
    const bool is_set = found != settings.lists.end();
    rows.push_back({fmt::format("notify.{}", name), is_set ? Json(found->second.values) : Json(),
                    is_set ? found->second.source : ""});
  }
  for (const auto& [name, otherwise] :
       {std::pair{"about_to_end", kDefaultBeforeEnd}, std::pair{"idle", kDefaultIdle}}) {
    const auto found = settings.texts.find(name);
    const bool is_set = found != settings.texts.end();
    rows.push_back({fmt::format("notify.{}", name),
                    is_set ? found->second.value : format_duration(otherwise),
                    is_set ? found->second.source : ""});
  }
}

Result<std::vector<SettingRow>> read_settings() {
  const Configuration configuration = TRY(read_configuration());
  TRY(check_request_defaults(configuration));
  TRY(check_notify_settings(configuration.notify));
  const HarbourLocation location = harbour_location();
  if (location.configuration_error) return tl::make_unexpected(*location.configuration_error);
  const std::string_view simulation = get_env_or_empty("BERTH_SIM");
  std::vector<SettingRow> rows;
  rows.push_back({"directory", location.path,
                  location.is_custom   ? "BERTH_DIR"
                  : simulation.empty() ? ""
                                       : "BERTH_SIM"});
  rows.push_back({"url", location.url ? Json(format_redacted_url(*location.url)) : Json(),
                  configuration.url_source});
  rows.push_back({"host", configuration.host, configuration.host_source});
  rows.push_back({"hosts", configuration.hosts ? Json(*configuration.hosts) : Json(),
                  configuration.hosts_source});
  rows.push_back(
      {"commands", are_commands_hidden() ? "hidden" : "shown", configuration.commands_source});
  for (const std::string_view name : kRequestDefaults) {
    const auto found = configuration.request_defaults.find(name);
    const bool is_set = found != configuration.request_defaults.end();
    rows.push_back({fmt::format("defaults.{}", name),
                    is_set ? Json(found->second.value) : or_null(builtin_request_default(name)),
                    is_set ? found->second.source : ""});
  }
  rows.push_back(
      {"jobs.output", format_size(configuration.job_output), configuration.job_output_source});
  rows.push_back(
      {"jobs.keep", format_duration(configuration.job_keep), configuration.job_keep_source});
  add_notify_rows(configuration.notify, rows);
  const auto timeout = TRY(read_driver_timeout());
  rows.push_back(variable_row("driver_timeout", "BERTH_DRIVER_TIMEOUT", format_duration(timeout)));
  rows.push_back(
      variable_row("simulation", "BERTH_SIM", simulation.empty() ? Json() : Json(simulation)));
  return rows;
}

// The files in the order in which they count.
std::vector<std::string> configuration_files() {
  std::vector<std::string> files;
  if (auto user = user_configuration_path()) files.push_back(std::move(*user));
  files.push_back(configuration_path());
  return files;
}

bool exists(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0;
}

std::string settings_json(const std::vector<SettingRow>& rows) {
  Json settings = Json::array();
  for (const SettingRow& row : rows) {
    settings.push_back(Json{{"name", row.name},
                            {"value", row.value},
                            {"source", row.source.empty() ? Json() : Json(row.source)}});
  }
  Json files = Json::array();
  for (const std::string& path : configuration_files())
    files.push_back(Json{{"path", path}, {"exists", exists(path)}});
  return fmt::format(
      "{}\n", to_ascii_json(Json{{"settings", std::move(settings)}, {"files", std::move(files)}}));
}

std::string value_text(const Json& value) {
  if (const auto* const text = value.as_string()) return *text;
  if (value.as_array() == nullptr) return "-";
  return join_text(*value.as_array(), ", ", [](const Json& item) { return *item.as_string(); });
}

std::string settings_table(const std::vector<SettingRow>& rows, const Terminal& terminal) {
  std::size_t name_width = 0;
  std::size_t width = std::string_view("VALUE").size();
  for (const SettingRow& row : rows) {
    name_width = std::max(name_width, row.name.size());
    width = std::max(width, display_width(terminal.escape(value_text(row.value))));
  }
  std::string text =
      fmt::format("{}  {}  FROM\n", align_left("SETTING", name_width), align_left("VALUE", width));
  for (const SettingRow& row : rows) {
    text += fmt::format("{}  {}  {}\n", align_left(row.name, name_width),
                        align_left(terminal.escape(value_text(row.value)), width),
                        row.source.empty() ? "default" : terminal.escape(row.source));
  }
  text += "\nFiles (a setting of the first one counts):\n";
  for (const std::string& path : configuration_files()) {
    text += fmt::format("  {}{}\n", terminal.escape(path), exists(path) ? "" : " (does not exist)");
  }
  return text;
}

Result<int> run(bool json) {
  const std::vector<SettingRow> rows = TRY(read_settings());
  print(json ? settings_json(rows) : settings_table(rows, terminal_at(STDOUT_FILENO)));
  return 0;
}

}  // namespace

Action define_config(Flags& command, const CommandContext& /*context*/) {
  auto json = std::make_shared<bool>(false);
  command.add_flag("--json", *json, "Print JSON (see docs/json.md)");
  command.set_argument_remedy("to change a setting, edit ~/.config/berth.toml");
  command.set_footer(
      "Settings are in ~/.config/berth.toml (yours) and /etc/berth.toml (of all users of the\n"
      "host). A flag counts more than a variable, a variable more than a file, and your file\n"
      "more than /etc/berth.toml. docs/configuration.md describes each setting.\n"
      "\nExample of a file:\n"
      "  url = \"redis://gpu-head\"        # the harbour of several hosts\n"
      "  [defaults]                      # for requests that do not state them\n"
      "  mem = \"auto\"\n"
      "  label = \"thesis\"\n"
      "\nExit codes: 0 done; 64 a setting is wrong; 74 a file cannot be read.");
  return [json]() { return run(*json); };
}

}  // namespace berth
