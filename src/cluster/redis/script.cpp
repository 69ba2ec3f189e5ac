// Running Lua scripts by digest or by source; see script.h.
#include "cluster/redis/script.h"

#include "base/sha1.h"
#include "cluster/redis/resp_channel.h"

namespace berth {

Script::Script(std::string_view source) : source_(source), sha1_(berth::sha1(source)) {}

RedisCommand Script::evalsha_command(const std::vector<std::string>& keys,
                                     const std::vector<std::string>& arguments) const {
  RedisCommand command{"EVALSHA", sha1_, std::to_string(keys.size())};
  command.insert(command.end(), keys.begin(), keys.end());
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

Result<Reply> Script::run(RedisConnection& connection, const std::vector<std::string>& keys,
                          const std::vector<std::string>& arguments) const {
  auto command = evalsha_command(keys, arguments);
  ReplyOrError answer = TRY(connection.call_raw(command));
  if (answer.error && answer.error->starts_with("NOSCRIPT")) {
    command[0] = "EVAL";
    command[1] = source_;
    answer = TRY(connection.call_raw(command));
  }
  return connection.to_result(std::move(answer));
}

}  // namespace berth
