#include "host/model_file.h"

namespace sinew {

Result<ModelFile> ModelFile::open(const std::string& path) {
  SINEW_ASSIGN(const std::vector<std::string> paths, split_paths(path));
  std::vector<MappedFile> files;
  std::vector<GgufPart> parts;
  for (const std::string& part_path : paths) {
    SINEW_ASSIGN(MappedFile file, MappedFile::open(part_path));
    parts.push_back(GgufPart{part_path, file.bytes()});
    files.push_back(std::move(file));
  }
  SINEW_ASSIGN(GgufModel directory, GgufModel::parse(parts));
  return ModelFile{std::move(directory), std::move(files)};
}

}  // namespace sinew
