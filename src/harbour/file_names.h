// The names of the files in the harbour's directory: docs/harbour-protocol.md lists them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "harbour/transaction.h"

namespace berth {

constexpr std::string_view kBellPrefix = "bell-";
constexpr std::string_view kLeasePrefix = "lease-";
constexpr std::string_view kTicketPrefix = "ticket-";
constexpr std::string_view kRequestPrefix = "request-";  // the changed request of a ticket
constexpr std::string_view kDrainPrefix = "drain-";
// A file that replaces another is written as new-RANDOM-NAME, and then renamed to NAME.
constexpr std::string_view kTemporaryPrefix = "new-";

std::string bell_file_name(const std::string& id);
std::string lease_file_name(const std::string& id);
std::string ticket_file_name(const TicketName& name);
std::string request_file_name(const std::string& id);
std::string drain_file_name(std::string uuid);
std::string temporary_file_name(const std::string& file);

// A ticket's name without its order and owner; nullopt if `file` is not the name of a ticket.
std::optional<TicketName> parse_ticket_file_name(std::string_view file);
// The name NAME in new-RANDOM-NAME; empty if `file` is not the name of a temporary file.
std::string_view replaced_file_name(std::string_view file);

// Does `file` begin as the names of Berth's files do?
bool has_harbour_prefix(std::string_view file);

}  // namespace berth
