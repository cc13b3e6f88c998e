// sinew-oracle: llama.cpp's prebuilt library behind a command line, for tests and benchmarks.
//
//   sinew-oracle tokenize MODEL [--special] [--bos]
//       standard input: count, then length + bytes of each text; output: length + ids of each
//       (uint32 and int32 in this machine's byte order); last line of standard error: the
//       processor time that it took, in seconds
//   sinew-oracle logits MODEL --tokens FILE --out FILE [--all | --last K] [--generate N --ids FILE]
//                       [--ctx N] [--chunk C] [--threads T] [--no-flash]
//                       [--f32-cache | --cache-type f32|f16|q8_0|q4_0 [--no-rotation]]
//       the command line of `sinew logits`: raw float32 logits, and lines "id gap". Keys and values
//       of a quantised cache are multiplied by a Hadamard matrix first; --no-rotation: they are not
//   sinew-oracle perplexity MODEL --tokens FILE [--window N] and the flags of logits
//       a line of JSON. Windows of N tokens (512) are read one by one, each from its beginning; all
//       tokens of a window count but its first
//   sinew-oracle bench MODEL [-p 64] [-n 32] [--threads T] [--repeat R]
//       a line of JSON with the medians, after one run that is not counted
//                       [--rpc PLUGIN --servers HOST:PORT,HOST:PORT.. --split layer|tensor]
//   sinew-oracle serve ADDRESS:PORT --rpc PLUGIN [--threads T]
//       a server of llama.cpp's RPC on this processor, until it is killed
//
// logits, perplexity, bench and serve take --cpu NAME (load libggml-cpu-NAME.so, not the best one
// for this processor) and
// --repack (weights in the layouts of the processor's own kernels). Repacking is off unless asked
// for: the AMX layout of this release aborts on quantised weights of multi-head latent attention.
#include <ggml-backend.h>
#include <ggml-rpc.h>
#include <llama.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using Tokens = std::vector<llama_token>;

struct ModelDelete {
  void operator()(llama_model* model) const { llama_model_free(model); }
};
struct ContextDelete {
  void operator()(llama_context* context) const { llama_free(context); }
};
using Model = std::unique_ptr<llama_model, ModelDelete>;
using Context = std::unique_ptr<llama_context, ContextDelete>;

// Flags that take a value, and those that do not ("--all").
class Arguments {
 public:
  Arguments(int argc, char** argv) {
    static const std::vector<std::string_view> kSwitches{
        "--special", "--bos", "--all", "--no-flash", "--f32-cache", "--repack", "--no-rotation"};
    for (int i = 3; i < argc; ++i) {
      const std::string name = argv[i];
      const bool alone = std::find(kSwitches.begin(), kSwitches.end(), name) != kSwitches.end();
      if (!alone && i + 1 >= argc) throw std::runtime_error(name + " wants a value");
      values_[name] = alone ? "" : argv[++i];
    }
  }
  bool has(const std::string& name) const { return values_.count(name) != 0; }
  std::string text(const std::string& name) const {
    const auto found = values_.find(name);
    if (found == values_.end()) throw std::runtime_error(name + " is missing");
    return found->second;
  }
  int number(const std::string& name, int otherwise) const {
    return has(name) ? std::stoi(text(name)) : otherwise;
  }

 private:
  std::map<std::string, std::string> values_;
};

// The plugin is the target sinew_oracle_rpc: the prebuilt library has none.
ggml_backend_reg_t load_rpc(const Arguments& arguments) {
  const ggml_backend_reg_t rpc = ggml_backend_load(arguments.text("--rpc").c_str());
  if (rpc == nullptr) throw std::runtime_error("the RPC plugin cannot be loaded");
  return rpc;
}

void add_servers(const Arguments& arguments) {
  const auto add_server = reinterpret_cast<decltype(&ggml_backend_rpc_add_server)>(
      ggml_backend_reg_get_proc_address(load_rpc(arguments), "ggml_backend_rpc_add_server"));
  std::istringstream servers(arguments.text("--servers"));
  for (std::string endpoint; std::getline(servers, endpoint, ',');) {
    const ggml_backend_reg_t server = add_server(endpoint.c_str());
    if (server == nullptr) throw std::runtime_error("no RPC server at " + endpoint);
    ggml_backend_register(server);
  }
}

void serve(const char* endpoint, const Arguments& arguments) {
  const auto start_server = reinterpret_cast<decltype(&ggml_backend_rpc_start_server)>(
      ggml_backend_reg_get_proc_address(load_rpc(arguments), "ggml_backend_rpc_start_server"));
  ggml_backend_dev_t processor = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
  start_server(endpoint, nullptr, static_cast<std::size_t>(arguments.number("--threads", 1)), 1,
               &processor);
  throw std::runtime_error("the RPC server has ended");
}

Model load(const char* path, const Arguments& arguments, bool vocab_only) {
  llama_model_params params = llama_model_default_params();
  params.use_extra_bufts = arguments.has("--repack");
  if (arguments.has("--servers")) {
    params.n_gpu_layers = 999;  // all on the servers
    params.split_mode =
        arguments.text("--split") == "tensor" ? LLAMA_SPLIT_MODE_TENSOR : LLAMA_SPLIT_MODE_LAYER;
  }
  params.progress_callback = [](float, void*) { return true; };  // no dots on standard error
  params.vocab_only = vocab_only;
  Model model(llama_model_load_from_file(path, params));
  if (!model) throw std::runtime_error(std::string(path) + " cannot be loaded");
  return model;
}

ggml_type cache_type(const Arguments& arguments) {
  if (arguments.has("--f32-cache")) return GGML_TYPE_F32;
  if (!arguments.has("--cache-type")) return GGML_TYPE_F16;
  const std::string name = arguments.text("--cache-type");
  for (const ggml_type type : {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0})
    if (name == ggml_type_name(type)) return type;
  throw std::runtime_error("--cache-type " + name + ": choose f32, f16, q8_0 or q4_0");
}

Context make_context(llama_model* model, const Arguments& arguments, int context, int chunk) {
  llama_context_params params = llama_context_default_params();
  params.n_ctx = static_cast<std::uint32_t>(context);
  params.n_batch = static_cast<std::uint32_t>(chunk);
  params.n_ubatch = static_cast<std::uint32_t>(chunk);
  params.n_threads = arguments.number("--threads", 1);
  params.n_threads_batch = params.n_threads;
  params.no_perf = true;
  if (arguments.has("--no-flash")) params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  params.type_k = params.type_v = cache_type(arguments);
  if (arguments.has("--no-rotation")) ::setenv("LLAMA_ATTN_ROT_DISABLE", "1", 1);
  Context made(llama_init_from_model(model, params));
  if (!made) throw std::runtime_error("no context");
  return made;
}

// Decodes tokens[from .. to) at their positions; logits are kept from position `wanted` on.
void decode(llama_context* context, const Tokens& tokens, int from, int to, int wanted) {
  llama_batch batch = llama_batch_init(to - from, 0, 1);
  batch.n_tokens = to - from;
  for (int i = 0; i < batch.n_tokens; ++i) {
    batch.token[i] = tokens[static_cast<std::size_t>(from + i)];
    batch.pos[i] = from + i;
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = 0;
    batch.logits[i] = from + i >= wanted ? 1 : 0;
  }
  const int status = llama_decode(context, batch);
  llama_batch_free(batch);
  if (status != 0) throw std::runtime_error("llama_decode: " + std::to_string(status));
}

std::pair<llama_token, float> best_and_gap(const float* logits, int vocabulary) {
  int best = 0;
  for (int i = 1; i < vocabulary; ++i)
    if (logits[i] > logits[best]) best = i;
  int second = best == 0 ? 1 : 0;
  for (int i = 0; i < vocabulary; ++i)
    if (i != best && logits[i] > logits[second]) second = i;
  return {best, logits[best] - logits[second]};
}

std::uint32_t read_count(std::istream& in) {
  std::uint32_t count = 0;
  if (!in.read(reinterpret_cast<char*>(&count), sizeof count))
    throw std::runtime_error("the input is too short");
  return count;
}

void tokenize(const char* path, const Arguments& arguments) {
  const Model model = load(path, arguments, true);
  const llama_vocab* vocabulary = llama_model_get_vocab(model.get());
  std::clock_t taken = 0;
  for (std::uint32_t left = read_count(std::cin); left > 0; --left) {
    std::string text(read_count(std::cin), '\0');
    if (!std::cin.read(text.data(), static_cast<std::streamsize>(text.size())))
      throw std::runtime_error("the input is too short");
    Tokens tokens(text.size() + 16);
    const std::clock_t begin = std::clock();
    const int count = llama_tokenize(vocabulary, text.data(), static_cast<int>(text.size()),
                                     tokens.data(), static_cast<int>(tokens.size()),
                                     arguments.has("--bos"), arguments.has("--special"));
    taken += std::clock() - begin;
    if (count < 0) throw std::runtime_error("more tokens than bytes");
    const auto length = static_cast<std::uint32_t>(count);
    std::cout.write(reinterpret_cast<const char*>(&length), sizeof length);
    std::cout.write(reinterpret_cast<const char*>(tokens.data()),
                    static_cast<std::streamsize>(length * sizeof(llama_token)));
  }
  std::cout.flush();
  std::fprintf(stderr, "%.3f\n", static_cast<double>(taken) / CLOCKS_PER_SEC);
}

Tokens read_tokens(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(file), {});
  Tokens tokens(bytes.size() / sizeof(llama_token));
  if (tokens.empty()) throw std::runtime_error(path + " holds no tokens");
  std::memcpy(tokens.data(), bytes.data(), tokens.size() * sizeof(llama_token));
  return tokens;
}

void logits(const char* path, const Arguments& arguments) {
  Tokens tokens = read_tokens(arguments.text("--tokens"));
  const int prompt = static_cast<int>(tokens.size());
  const int generate = arguments.number("--generate", 0);
  const int last = arguments.has("--all") ? prompt : arguments.number("--last", 1);
  const int chunk = arguments.number("--chunk", 512);
  const Model model = load(path, arguments, false);
  const int vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model.get()));
  const Context context =
      make_context(model.get(), arguments, arguments.number("--ctx", prompt + generate + 1), chunk);

  std::ofstream out(arguments.text("--out"), std::ios::binary);
  const int wanted = std::max(0, prompt - last);
  const float* row = nullptr;
  for (int from = 0; from < prompt; from += chunk) {
    const int to = std::min(prompt, from + chunk);
    decode(context.get(), tokens, from, to, wanted);
    for (int i = std::max(from, wanted); i < to; ++i) {
      row = llama_get_logits_ith(context.get(), i - from);
      if (row == nullptr) throw std::runtime_error("no logits at position " + std::to_string(i));
      out.write(reinterpret_cast<const char*>(row),
                static_cast<std::streamsize>(sizeof(float)) * vocabulary);
    }
  }
  out.close();
  if (!out) throw std::runtime_error("the logits cannot be written");
  if (generate == 0) return;

  std::ofstream ids(arguments.text("--ids"));
  for (int i = 0; i < generate; ++i) {
    const auto [best, gap] = best_and_gap(row, vocabulary);
    ids << best << ' ' << gap << '\n';
    if (i + 1 == generate) break;
    tokens.push_back(best);
    decode(context.get(), tokens, prompt + i, prompt + i + 1, prompt + i);
    row = llama_get_logits_ith(context.get(), 0);
  }
  ids.close();
  if (!ids) throw std::runtime_error("the ids cannot be written");
}

// -log of the probability that a row of logits gives to `token`.
double surprise(const float* logits, int vocabulary, llama_token token) {
  const double top = *std::max_element(logits, logits + vocabulary);
  double sum = 0;
  for (int i = 0; i < vocabulary; ++i) sum += std::exp(double{logits[i]} - top);
  return top + std::log(sum) - double{logits[token]};
}

void perplexity(const char* path, const Arguments& arguments) {
  const Tokens tokens = read_tokens(arguments.text("--tokens"));
  const int window = arguments.number("--window", 512);
  const int chunk = arguments.number("--chunk", 512);
  if (window < 2 || chunk < 1)
    throw std::runtime_error("--window is at least 2, --chunk at least 1");
  const Model model = load(path, arguments, false);
  const int vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model.get()));
  for (const llama_token token : tokens)
    if (token < 0 || token >= vocabulary)
      throw std::runtime_error("token " + std::to_string(token) + " is not in the vocabulary");
  const Context context = make_context(model.get(), arguments, window, chunk);
  double sum = 0;
  std::size_t counted = 0;
  const auto width = static_cast<std::size_t>(window);
  for (std::size_t begin = 0; begin + 1 < tokens.size(); begin += width) {
    const std::size_t end = std::min(tokens.size(), begin + width);
    const Tokens part(tokens.begin() + static_cast<std::ptrdiff_t>(begin),
                      tokens.begin() + static_cast<std::ptrdiff_t>(end));
    const int size = static_cast<int>(part.size());
    llama_memory_clear(llama_get_memory(context.get()), true);
    for (int from = 0; from + 1 < size; from += chunk) {
      const int to = std::min(size, from + chunk);
      decode(context.get(), part, from, to, 0);
      for (int i = from; i < std::min(to, size - 1); ++i, ++counted)
        sum += surprise(llama_get_logits_ith(context.get(), i - from), vocabulary,
                        part[static_cast<std::size_t>(i) + 1]);
    }
  }
  if (counted == 0) throw std::runtime_error("one token alone predicts nothing");
  const double mean = sum / static_cast<double>(counted);
  std::printf(R"({"tokens": %zu, "mean_surprise": %.6f, "perplexity": %.6f})"
              "\n",
              counted, mean, std::exp(mean));
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

void bench(const char* path, const Arguments& arguments) {
  using Clock = std::chrono::steady_clock;
  const int prompt = arguments.number("-p", 64);
  const int generate = arguments.number("-n", 32);
  const int repeat = arguments.number("--repeat", 1);
  if (prompt < 1 || generate < 1 || repeat < 1)
    throw std::runtime_error("-p, -n and --repeat are at least 1");
  const Model model = load(path, arguments, false);
  const int vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model.get()));
  const Context context =
      make_context(model.get(), arguments, prompt + generate + 1, std::max(prompt, 1));
  std::vector<double> prefill;
  std::vector<double> decoding;
  for (int run = 0; run <= repeat; ++run) {
    llama_memory_clear(llama_get_memory(context.get()), true);
    Tokens tokens;
    std::uint32_t state = 1;
    for (int i = 0; i < prompt; ++i) {
      state = state * 1664525u + 1013904223u;
      tokens.push_back(
          static_cast<llama_token>((state >> 8) % static_cast<std::uint32_t>(vocabulary)));
    }
    const auto start = Clock::now();
    decode(context.get(), tokens, 0, prompt, prompt - 1);
    const float* row = llama_get_logits_ith(context.get(), prompt - 1);
    const auto middle = Clock::now();
    for (int i = 0; i < generate; ++i) {
      tokens.push_back(best_and_gap(row, vocabulary).first);
      decode(context.get(), tokens, prompt + i, prompt + i + 1, prompt + i);
      row = llama_get_logits_ith(context.get(), 0);
    }
    const auto end = Clock::now();
    if (run == 0) continue;
    prefill.push_back(prompt / std::chrono::duration<double>(middle - start).count());
    decoding.push_back(generate / std::chrono::duration<double>(end - middle).count());
  }
  std::printf(R"({"prefill_tps": %.3f, "decode_tps": %.3f, "threads": %d, "repeat": %d})"
              "\n",
              median(prefill), median(decoding), arguments.number("--threads", 1), repeat);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fputs(
        "usage: sinew-oracle tokenize|logits|perplexity|bench|serve MODEL|ENDPOINT [flags]\n",
        stderr);
    return 2;
  }
  ::setenv("GGML_NO_BACKTRACE", "1", 0);  // an assertion of ggml would start a debugger
  llama_log_set(
      [](ggml_log_level level, const char* text, void*) {
        if (level >= GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
      },
      nullptr);
  try {
    const Arguments arguments(argc, argv);
    cache_type(arguments);  // refuses a wrong one before a model is read
    if (arguments.has("--cpu"))
      ggml_backend_load(
          (SINEW_ORACLE_FOLDER "/libggml-cpu-" + arguments.text("--cpu") + ".so").c_str());
    else
      ggml_backend_load_all_from_path(SINEW_ORACLE_FOLDER);
    if (ggml_backend_reg_count() == 0) throw std::runtime_error("no CPU backend could be loaded");
    const std::string_view command = argv[1];
    if (arguments.has("--servers")) add_servers(arguments);
    if (command == "tokenize")
      tokenize(argv[2], arguments);
    else if (command == "logits")
      logits(argv[2], arguments);
    else if (command == "perplexity")
      perplexity(argv[2], arguments);
    else if (command == "bench")
      bench(argv[2], arguments);
    else if (command == "serve")
      serve(argv[2], arguments);
    else
      throw std::runtime_error("unknown command");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "sinew-oracle: %s\n", error.what());
    return 1;
  }
  return 0;
}
