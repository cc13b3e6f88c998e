#include "gguf/reader.h"

#include <utility>

#include "base/assert.h"
#include "gguf/part.h"
#include "gguf/printable.h"

namespace sinew {

Result<GgufModel> GgufModel::parse(std::span<const GgufPart> parts) {
  SINEW_ASSERT(!parts.empty());
  std::vector<PartDirectory> directories;
  for (const GgufPart& part : parts) {
    const auto index = static_cast<std::uint32_t>(directories.size());
    SINEW_ASSIGN(PartDirectory directory, parse_part(part, index));
    directories.push_back(std::move(directory));
  }
  SINEW_TRY(check_split(parts, directories));

  GgufModel model;
  model.version_ = directories.front().version;
  model.metadata_ = std::move(directories.front().metadata);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    model.paths_.push_back(parts[i].path);
    for (TensorInfo& tensor : directories[i].tensors) {
      const auto [place, inserted] = model.by_name_.emplace(tensor.name, model.tensors_.size());
      if (!inserted)
        return fail(
            ErrorCode::kInvalidFile,
            "{}: the tensor '{}' is there twice, first in {}; the file is damaged: download or "
            "convert it again",
            parts[i].path, printable(tensor.name), parts[model.tensors_[place->second].part].path);
      model.tensors_.push_back(std::move(tensor));
    }
  }
  return model;
}

const TensorInfo* GgufModel::find(std::string_view name) const {
  const auto place = by_name_.find(name);
  return place == by_name_.end() ? nullptr : &tensors_[place->second];
}

}  // namespace sinew
