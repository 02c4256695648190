// Where the long rows of a graph are: see pass.h.
#include "kernels.h"
#include "pass.h"

namespace tensus::cuda {
namespace {

template <class I> const char* find(const Segments& g, void* parts, void* stream) {
  const int64_t chunks = chunks_of(g.edges);
  if (chunks == 0) return nullptr;
  launch(find_parts<I>, smaller<int64_t>(1 << 16, chunks), kThreads, 0, stream,
         LongRows<I>{static_cast<const I*>(g.row_ptr), static_cast<const I*>(g.seg_ptr), g.nodes, g.edges,
                     static_cast<Part<I>*>(parts)});
  return launch_error();
}

}  // namespace

size_t parts_size(const Segments& g) {
  return size_t(2 * chunks_of(g.edges)) * (g.wide ? sizeof(Part<int64_t>) : sizeof(Part<int32_t>));
}

const char* find_parts(const Segments& g, void* parts, void* stream) {
  return g.wide ? find<int64_t>(g, parts, stream) : find<int32_t>(g, parts, stream);
}

}  // namespace tensus::cuda
