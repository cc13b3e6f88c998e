// The one binary: parses the command line and runs one command. Errors are one line on standard
// error with the remedy, and the exit status of docs/user-guide.md.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <iostream>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/doctor.h"
#include "cli/node.h"
#include "cli/show.h"
#include "cli/verify.h"
#include "engine/rank_main.h"

namespace {

using namespace sinew;

int report(const Status& status) {
  if (status) return EXIT_SUCCESS;
  fmt::print(stderr, "sinew: error: {}\n", status.error().message);
  return exit_status(status.error().code);
}

// What each command line leads to; filled by the parser's callbacks.
struct CommandLine {
  CLI::App app{
      "Runs one language model across the memory of several machines, or of several local ranks."};
  RunFlags run;
  ServeFlags serve;
  LogitsFlags logits;
  BenchFlags bench;
  BenchLinksFlags bench_links;
  BenchCollectivesFlags bench_collectives;
  VerifyFlags verify;
  DoctorFlags doctor;
  ClusterCreateFlags cluster_create;
  NodeFlags node;
  ClusterShowFlags cluster_show;
  bool proven = true;  // what verify or doctor found
  std::string show_path;
  bool show_json = false;
  int demo_ranks = 4;
  std::function<Status()> command;

  CommandLine() {
    app.require_subcommand(1);
    app.set_version_flag("--version",
                         fmt::format("sinew {} (ggml {})", SINEW_VERSION, SINEW_GGML_VERSION));
    add_run();
    add_serve();
    add_small();
    add_measurements();
    add_verify();
    add_doctor();
    add_cluster();
  }

  void add_run() {
    CLI::App* sub = app.add_subcommand("run", "Answer a prompt, or talk when none is given");
    sub->add_option("MODEL", run.model.model, "GGUF file (any part of a split model)")->required();
    CLI::Option* prompt = sub->add_option("PROMPT", run.prompt, "What to answer");
    run.model.add_to(*sub);
    run.sampling.add_to(*sub);
    sub->add_option("-n,--tokens", run.tokens_max,
                    "Most tokens of an answer (default: what the context holds)");
    sub->add_option("--system", run.system, "System message of the conversation");
    sub->add_flag("--ignore-eos", run.ignore_eos, "Go on after the model ends its answer");
    sub->add_flag("--raw", run.raw, "Continue the prompt as text, without the chat template");
    sub->callback([this, prompt] {
      run.has_prompt = prompt->count() > 0;
      command = [this] { return run.model.lead_or_serve([this] { return run_command(run); }); };
    });
  }

  void add_serve() {
    CLI::App* sub = app.add_subcommand("serve", "Serve the OpenAI chat API over HTTP");
    sub->add_option("MODEL", serve.model.model, "GGUF file (any part of a split model)")
        ->required();
    serve.model.add_to(*sub);
    sub->add_option("--host", serve.host, "Address to listen on (default: 127.0.0.1)");
    sub->add_option("--port", serve.port, "Port to listen on; 0 takes a free one (default: 8080)");
    sub->add_option("--alias", serve.alias,
                    "Name of the model in the API (default: the file's name)");
    sub->add_option("--api-key", serve.api_key,
                    "Key that clients must send; needed off the loopback address")
        ->envname("SINEW_API_KEY");
    sub->add_option("--allow-origin", serve.allowed_origins,
                    "Web origin that may call the API from a browser; may be repeated");
    sub->callback([this] {
      command = [this] {
        return serve.model.lead_or_serve([this] { return serve_command(serve); });
      };
    });
  }

  void add_small() {
    CLI::App* demo =
        app.add_subcommand("demo", "Answer with the bundled model, split over local ranks");
    demo->add_option("--ranks", demo_ranks, "Ranks (default: 4)");
    demo->callback([this] { command = [this] { return demo_command(demo_ranks); }; });

    CLI::App* show = app.add_subcommand("show", "Print what a GGUF file holds");
    show->add_option("FILE", show_path, "GGUF file")->required();
    show->add_flag("--json", show_json, "As JSON");
    show->callback(
        [this] { command = [this] { return show_model(show_path, show_json, std::cout); }; });
  }

  void add_verify() {
    CLI::App* sub = app.add_subcommand(
        "verify", "Prove that a model is split without a fault: its bytes and what ranks compute");
    sub->add_option("MODEL", verify.model.model, "GGUF file (any part of a split model)")
        ->required();
    verify.model.add_to(*sub);
    sub->add_flag("--short", verify.brief,
                  "Seconds instead of minutes: samples and a short prompt");
    sub->add_option("--tokens", verify.tokens_file,
                    "File of int32 tokens to compute (default: a text of our own)");
    sub->add_option("--record", verify.record,
                    "Write what one rank, or the ranks asked for, compute to a file");
    sub->add_option("--against", verify.against,
                    "Compare with such a file, where one rank cannot hold the model");
    sub->add_flag("--json", verify.json, "As JSON");
    // For tests of verify itself: damages a rank, as in 1:byte=TENSOR@OFFSET.
    sub->add_option("--inject", verify.inject)->group("");
    sub->callback([this] {
      command = [this]() -> Status {
        SINEW_ASSIGN(proven, verify_command(verify));
        return {};
      };
    });
  }

  void add_doctor() {
    CLI::App* sub = app.add_subcommand(
        "doctor", "Find what on this machine keeps a model from running, and how to mend it");
    sub->add_option("MODEL", doctor.model, "GGUF file that is to run here");
    sub->add_option("--peers", doctor.peers, "Machines to reach, as in 10.77.12.2,10.77.13.2:7000")
        ->delimiter(',');
    sub->add_flag("--json", doctor.json, "As JSON");
    sub->add_flag("--probe-rdma", doctor.probe_rdma)->group("");
    sub->callback([this] {
      doctor.ggml = SINEW_GGML_VERSION;
      command = [this]() -> Status {
        SINEW_ASSIGN(proven, doctor_command(doctor));
        return {};
      };
    });
  }

  void add_cluster() {
    constexpr const char* kStateHelp =
        "Folder of secret and identity (default: $SINEW_STATE, else the user's state folder)";
    CLI::App* cluster = app.add_subcommand("cluster", "Make a cluster");
    cluster->require_subcommand(1);
    CLI::App* create = cluster->add_subcommand("create", "Draw a secret and print the join token");
    create->add_option("NAME", cluster_create.name, "Its name, for people (default: sinew)");
    create->add_option("--state", cluster_create.state, kStateHelp);
    create->callback(
        [this] { command = [this] { return cluster_create_command(cluster_create); }; });

    CLI::App* agent = app.add_subcommand("node", "Run this machine's agent");
    agent->add_option("--join", node.join, "HOST[:PORT] of a machine that is in the cluster");
    agent->add_option("--secret-file", node.secret_file,
                      "File with the join token, mode 0600; - is standard input "
                      "(default: $SINEW_SECRET, else standard input)");
    agent->add_option("--peer", node.peers, "HOST[:PORT] to keep a connection to; may be repeated");
    agent->add_option("--listen", node.listen,
                      "IP address to listen on; may be repeated (default: all)");
    agent->add_option("--port", node.port, "Port to listen on (default: 7463)");
    agent->add_flag("--no-discovery", node.no_discovery,
                    "Neither announce this machine nor look for others by Bonjour or Avahi");
    agent->add_option("--state", node.state, kStateHelp);
    agent->callback([this] { command = [this] { return node_command(node); }; });

    const auto add_show = [&](const char* name, const char* help,
                              Status (*show)(const ClusterShowFlags&)) {
      CLI::App* sub = app.add_subcommand(name, help);
      sub->add_option("--state", cluster_show.state, kStateHelp);
      sub->add_flag("--json", cluster_show.json, "As JSON");
      sub->callback([this, show] { command = [this, show] { return show(cluster_show); }; });
    };
    add_show("nodes", "The cluster's machines, as this one's agent knows them", nodes_command);
    add_show("links", "Every address of every machine, measured, and which is in use",
             links_command);
    add_show("events", "What happened to the cluster, as this machine saw it", events_command);
  }

  void add_measurements() {
    CLI::App* sub =
        app.add_subcommand("logits", "Write logits of given tokens to a file (for tests)");
    sub->add_option("MODEL", logits.model.model, "GGUF file")->required();
    logits.model.add_to(*sub);
    sub->add_option("--tokens", logits.tokens_file, "File of int32 tokens")->required();
    sub->add_option("--out", logits.out_file, "File for float32 logits");
    sub->add_flag("--all", logits.all, "Logits of every token, not only of the last");
    sub->add_option("--generate", logits.generate, "Greedy tokens to append");
    sub->add_option("--ids", logits.ids_file, "File for the greedy tokens: lines of 'id gap'");
    sub->callback([this] {
      command = [this] {
        return logits.model.lead_or_serve([this] { return logits_command(logits); });
      };
    });

    CLI::App* speed = app.add_subcommand("bench", "Measure tokens per second of prompt and answer");
    CLI::Option* model = speed->add_option("MODEL", bench.model.model, "GGUF file");
    bench.model.add_to(*speed);
    speed->add_option("-p", bench.prompt_tokens, "Tokens of the prompt (default: 64)");
    speed->add_option("-n", bench.answer_tokens, "Tokens of the answer (default: 32)");
    speed->add_option("--repeats", bench.repeats, "Measured runs (default: 3)");
    speed->add_flag("--json", bench.json, "As JSON");
    add_bench_links(*speed);
    add_bench_collectives(*speed);
    speed->callback([this, speed, model] {
      if (!speed->get_subcommands().empty()) return;  // which has said what to do
      if (model->count() == 0) throw CLI::RequiredError("MODEL");
      command = [this] {
        return bench.model.lead_or_serve([this] { return bench_command(bench); });
      };
    });
  }

  void add_bench_links(CLI::App& parent) {
    CLI::App* sub = parent.add_subcommand(
        "links", "Measure latency and bandwidth of the links between ranks on this machine");
    sub->add_option("--ranks", bench_links.ranks, "Ranks, 2 to 8 (default: 2)");
    sub->add_option("--transport", bench_links.transport, "shm or tcp (default: shm)");
    sub->add_option("--sizes", bench_links.sizes, "As in 8192,28K,4M (default: 4 B to 64 MB)");
    sub->add_option("--repeats", bench_links.repeats,
                    "Most round trips of a size (default: 1000; fewer of long messages)");
    sub->add_flag("--json", bench_links.json, "As JSON");
    sub->callback([this] { command = [this] { return bench_links_command(bench_links); }; });
  }

  void add_bench_collectives(CLI::App& parent) {
    BenchCollectivesFlags& flags = bench_collectives;
    CLI::App* sub = parent.add_subcommand(
        "collectives", "Measure sums, gathers and broadcasts of ranks on this machine");
    sub->add_option("--ranks", flags.ranks, "Ranks, 2 to 8 (default: 4)");
    sub->add_option("--transport", flags.transport, "shm or tcp (default: shm)");
    sub->add_option("--wire", flags.wire, "How sums travel: f32, bf16 or f16 (default: f32)");
    sub->add_option("--sizes", flags.sizes, "As in 8192,28K,4M (default: 4 B to 64 MB)");
    sub->add_option("--only", flags.only,
                    "One operation or algorithm, as all-gather or two-phase (default: all)");
    sub->add_option("--repeats", flags.repeats,
                    "Most repeats of a size (default: 1000; fewer of long vectors)");
    sub->add_flag("--json", flags.json, "As JSON");
    sub->callback(
        [this] { command = [this] { return bench_collectives_command(bench_collectives); }; });
  }
};

}  // namespace

int main(int argc, char** argv) {
  const char* level = std::getenv("SINEW_LOG");
  if (argc >= 2 && std::string_view(argv[1]) == "rank") {
    set_up_log("sinew rank", level == nullptr ? "" : level);
    return rank_main({argv + 2, argv + argc});
  }
  set_up_log("sinew", level == nullptr ? "" : level);
  CommandLine line;
  try {
    line.app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return line.app.exit(error);  // --help, --version
    fmt::print(stderr, "sinew: error: {}; see 'sinew --help' and 'sinew COMMAND --help'\n",
               error.what());
    return exit_status(ErrorCode::kUsage);
  }
  const int status = report(line.command());
  return status == EXIT_SUCCESS && !line.proven ? EXIT_FAILURE : status;
}
