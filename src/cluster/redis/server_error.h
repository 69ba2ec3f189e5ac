// What an error that a Redis server replied means for who asked, and what to do about it.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace berth {

// Who talks to which server.
struct ServerIdentity {
  std::string server;  // as format_redacted_url() has it
  std::string user;    // of the server's ACL; empty: "default"
  std::string prefix;  // of the keys
};

// "OOM command not allowed …" -> away: "redis://… is out of memory; …". `text` may be anything; it
// must not be the answer to a command that had a password in it.
Error translate_error(std::string_view text, const ServerIdentity& identity);

// The same for such an answer (AUTH, HELLO): without the server's words, since some servers repeat
// the whole command.
Error translate_login_error(std::string_view text, const ServerIdentity& identity);

}  // namespace berth
