#pragma once

#include <cstdint>
#include <string>

#include "engine/engine.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace sinew {

// A loaded model under its public name. The references outlive the server that is given them.
struct ServedModel {
  std::string id;
  Engine& engine;
  const Tokenizer& tokenizer;
  const ChatTemplate& chat_template;
  std::int64_t created = 0;  // seconds since 1970, UTC
};

}  // namespace sinew
