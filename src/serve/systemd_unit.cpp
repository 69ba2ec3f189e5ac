// Writes the unit, with the sandbox settings of systemd.exec(5); see systemd_unit.h.
//
// Some settings must be absent. Leases are files in /tmp/berth: no PrivateTmp and no DynamicUser.
// Their owners and processes are identified by uids and /proc: no PrivateUsers, no ProtectProc and
// no ProcSubset. The driver is reached through /dev/nvidia*: no PrivateDevices, and no
// ProtectClock, which closes all devices that are not listed.
#include "serve/systemd_unit.h"

#include <algorithm>
#include <fmt/format.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/users.h"
#include "harbour/location.h"

namespace berth::serve {
namespace {

constexpr std::string_view kHead =
    "# Written by 'berth serve --print-unit'. To start it now and at each boot:\n"
    "#   berth serve --print-unit | sudo tee /etc/systemd/system/berth-serve.service &&\n"
    "#     sudo systemctl enable --now berth-serve\n"
    "[Unit]\n"
    "Description=berth: web page of this host's GPUs, leases and queue\n"
    "Documentation=man:systemd.exec(5)\n"
    "After=network-online.target\n"
    "Wants=network-online.target\n"
    "\n"
    "[Service]\n"
    "Type=exec\n";

constexpr std::string_view kRestart =
    "Restart=on-failure\n"
    "RestartSec=5\n"
    "# Exit code 64 means wrong usage: a restart does not help.\n"
    "RestartPreventExitStatus=64\n"
    "\n";

constexpr std::string_view kSandbox =
    "NoNewPrivileges=yes\n"
    "CapabilityBoundingSet=\n"
    "ProtectSystem=strict\n"
    "ProtectHome=read-only\n"
    "ProtectKernelTunables=yes\n"
    "ProtectKernelModules=yes\n"
    "ProtectKernelLogs=yes\n"
    "ProtectControlGroups=yes\n"
    "ProtectHostname=yes\n"
    "LockPersonality=yes\n"
    "RestrictNamespaces=yes\n"
    "RestrictRealtime=yes\n"
    "RestrictSUIDSGID=yes\n"
    "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK\n"
    "SystemCallArchitectures=native\n"
    "UMask=0077\n"
    "# The server must see the /tmp, /proc, users and devices of the host: no PrivateTmp, no\n"
    "# ProtectProc, no PrivateUsers, no PrivateDevices, no ProtectClock (which closes "
    "/dev/nvidia*).\n"
    "\n"
    "[Install]\n"
    "WantedBy=multi-user.target\n";

std::string parent_directory(const std::string& path) {
  const std::size_t slash = path.find_last_not_of('/') == std::string::npos
                                ? std::string::npos
                                : path.rfind('/', path.find_last_not_of('/'));
  return slash == 0 || slash == std::string::npos ? "/" : path.substr(0, slash);
}

// For changes, grants access to the folder above the harbour: systemd mounts the path when the
// server starts, and if a user deletes the harbour and creates it again, the server must see the
// new one. Otherwise only to the archive, for the load history; "-": if there is one at the start.
std::string format_write_paths(const UnitOptions& options) {
  if (!options.allow_changes) {
    const std::string archive = options.harbour.empty()
                                    ? kDefaultArchive
                                    : fmt::format("{}/{}", options.harbour, kArchiveInHarbour);
    return fmt::format("ReadWritePaths={}\n", quote_unit_word("-" + archive, UnitContext::setting));
  }
  if (options.harbour.empty()) return "ReadWritePaths=/tmp /var/tmp\n";
  return fmt::format("ReadWritePaths={}\n",
                     quote_unit_word(parent_directory(options.harbour), UnitContext::setting));
}

}  // namespace

// systemd expands specifiers ("%h") everywhere, and variables ("$HOME") in commands.
std::string quote_unit_word(std::string_view text, UnitContext context) {
  std::string out;
  bool plain = !text.empty();
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '%' || (c == '$' && context == UnitContext::command)) {
      out += c;
      out += c;
    } else if (c == '"' || c == '\\' || c == '\'') {
      out += '\\';
      out += c;
      plain = false;
    } else if (byte < ' ' || byte == 0x7F) {
      out += fmt::format("\\x{:02x}", byte);
      plain = false;
    } else {
      plain = plain && c != ' ' && c != ';' && c != '#';
      out += c;
    }
  }
  return plain ? out : fmt::format("\"{}\"", out);
}

std::string choose_unit_user() {
  const uid_t uid = ::geteuid();
  if (uid == 0) return "nobody";
  // systemd rejects user names with other characters, which some user directories (LDAP) have.
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  };
  const std::string& name = user_name(uid);
  return std::all_of(name.begin(), name.end(), is_plain) ? name : std::to_string(uid);
}

std::string format_unit(const UnitOptions& options) {
  std::string command =
      fmt::format("{} serve", quote_unit_word(options.program, UnitContext::command));
  for (const std::string& word : options.arguments) {
    command += fmt::format(" {}", quote_unit_word(word, UnitContext::command));
  }
  std::string environment;
  if (!options.harbour.empty()) {
    environment = fmt::format(
        "Environment={}\n", quote_unit_word("BERTH_DIR=" + options.harbour, UnitContext::setting));
  }
  return fmt::format("{}User={}\n{}ExecStart={}\n{}{}{}", kHead, options.user, environment, command,
                     kRestart, format_write_paths(options), kSandbox);
}

}  // namespace berth::serve
