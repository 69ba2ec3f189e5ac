// Translates error replies of a Redis server: what is wrong, and what the user can do about it.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace berth {

// The server and the login that an error is about.
struct ServerIdentity {
  std::string server;  // its name in messages, as format_redacted_url() returns it
  std::string user;    // of the server's ACL; empty: "default"
  std::string prefix;  // of the keys
};

// "OOM command not allowed …" becomes ErrorKind::unavailable, "redis://… is out of memory; …".
// `text` may be anything. It must not be the reply to a command that contains a password: an
// unknown error is quoted in the message.
Error translate_error(std::string_view text, const ServerIdentity& identity);

// The same for the reply to a command that contains a password (AUTH, HELLO). Never quotes `text`,
// since some servers repeat the whole command in it.
Error translate_login_error(std::string_view text, const ServerIdentity& identity);

}  // namespace berth
