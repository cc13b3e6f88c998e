#pragma once

#include <string>

#include "cli/options.h"

namespace sinew {

// Each command returns when it has done its work; its error ends the program with one line and the
// error's exit status. Standard output is for results alone.

struct RunFlags {
  ModelFlags model;
  SamplingFlags sampling;
  std::string prompt;
  bool has_prompt = false;
  std::string system;
  std::int64_t tokens_max = -1;  // -1: as many as the context holds
  bool ignore_eos = false;
  bool raw = false;  // continue the prompt as text, without the chat template
};
// One answer, or with no prompt a conversation. kCancelled if Ctrl-C stopped the one answer.
Status run_command(const RunFlags& flags);
// The bundled model over four ranks.
Status demo_command(int ranks);

struct ServeFlags {
  ModelFlags model;
  std::string host = "127.0.0.1";
  int port = 8080;
  std::string alias;
  std::string api_key;
  std::vector<std::string> allowed_origins;
};
Status serve_command(const ServeFlags& flags);

// For tests and benchmarks.
struct LogitsFlags {
  ModelFlags model;
  std::string tokens_file;  // int32, little-endian
  std::string out_file;     // float32: logits of the last token, or of all
  bool all = false;
  int generate = 0;      // greedy tokens to append
  std::string ids_file;  // one line "id gap" each: gap between the two best logits
};
Status logits_command(const LogitsFlags& flags);

struct BenchFlags {
  ModelFlags model;
  int prompt_tokens = 64;
  int answer_tokens = 32;
  int repeats = 3;
  bool json = false;
};
Status bench_command(const BenchFlags& flags);

// Every link between ranks on this machine, beside what such links do elsewhere.
struct BenchLinksFlags {
  int ranks = 2;
  std::string transport = "shm";
  std::string sizes;  // empty: 4 B to 64 MB
  int repeats = 1000;
  bool json = false;
};
Status bench_links_command(const BenchLinksFlags& flags);

// What ranks on this machine do together.
struct BenchCollectivesFlags {
  int ranks = 4;
  std::string transport = "shm";
  std::string wire = "f32";
  std::string sizes;  // empty: 4 B to 64 MB
  std::string only;   // operation or algorithm; empty: all
  int repeats = 1000;
  bool json = false;
};
Status bench_collectives_command(const BenchCollectivesFlags& flags);

}  // namespace sinew
