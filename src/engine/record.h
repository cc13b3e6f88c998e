#pragma once

#include <map>
#include <string>

#include "engine/canary.h"
#include "host/model_file.h"

namespace sinew {

// What says that two files are the same model.
struct ModelIdentity {
  std::string header;                          // XXH3, 128 bits, of everything before the tensors
  std::map<std::string, std::string> tensors;  // XXH3, 64 bits, of each; empty in the short form
};
// `stop` is asked after each tensor; true ends with kCancelled.
Result<ModelIdentity> identify(const ModelFile& file, bool with_tensors,
                               const std::function<bool()>& stop);
// Ok, or which part differs. Tensors are compared where both have them.
Status same_model(const ModelIdentity& recorded, const ModelIdentity& here);

// A reference that another machine, or an earlier day, has computed: `sinew verify --record`. Of
// each place it keeps the last token of every chunk and the tokens of the answer.
struct Record {
  std::string program;  // version that wrote it
  std::string layout;   // for people
  int chunk_tokens = 0;
  ModelIdentity model;
  Reference reference;
};
inline constexpr std::uint64_t kRecordBytesMax = 256u << 20;
Status write_record(const std::string& path, const Record& record);
// kInvalidFile for anything but a record that is whole.
Result<Record> read_record(const std::string& path);

}  // namespace sinew
