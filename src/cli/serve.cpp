#include <fmt/format.h>

#include <chrono>

#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/loaded_model.h"
#include "server/http_server.h"

namespace sinew {

Status serve_command(const ServeFlags& flags) {
  watch_interrupts();
  SINEW_ASSIGN(LoadedModel model, LoadedModel::load(flags.model));
  if (!model.chat_template)
    return fail(
        ErrorCode::kUnsupported,
        "{}: has no chat template (tokenizer.chat_template), which /v1/chat/completions needs",
        flags.model.model);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const ServedModel served{flags.alias.empty() ? model.id : flags.alias, *model.engine,
                           model.tokenizer, *model.chat_template,
                           std::chrono::duration_cast<std::chrono::seconds>(now).count()};
  ServerOptions options;
  options.host = flags.host;
  options.port = flags.port;
  options.api_key = flags.api_key;
  options.allowed_origins = flags.allowed_origins;
  SINEW_ASSIGN(const std::unique_ptr<Server> server, Server::start(options, served));
  fmt::print(stderr, "{} ready; listening on {}\n", served.id, server->url());
  // A server without its ranks is of no use: whoever supervises it should see it end.
  Status health;
  server->run_until([&] {
    health = model.engine->health();
    return interrupts() > 0 || !health;
  });
  return health;
}

}  // namespace sinew
