// Theoretical occupancy by NVIDIA's own formula: reads lines of "registers shared-bytes threads" (shared memory that is
// asked for at the launch) and writes the percentage of a multiprocessor's threads that run at once, on each GPU.
#include <cuda_occupancy.h>

#include <climits>
#include <cstdio>

namespace {

struct Gpu {
  int major, minor, threads, multiprocessors;  // threads: of a multiprocessor
  size_t shared, shared_of_block,
      reserved;  // bytes of a multiprocessor, of a block that asks, of a block for the driver
};

constexpr size_t kKiB = 1024;
constexpr Gpu kGpus[] = {
    // CUDA C++ Programming Guide, technical specifications per compute capability
    {7, 5, 1024, 68, 64 * kKiB, 64 * kKiB, 0},            // RTX 2080 Ti
    {8, 0, 2048, 108, 164 * kKiB, 163 * kKiB, 1 * kKiB},  // A100
    {8, 6, 1536, 82, 100 * kKiB, 99 * kKiB, 1 * kKiB},    // RTX 3090
    {9, 0, 2048, 132, 228 * kKiB, 227 * kKiB, 1 * kKiB},  // H100
};

int occupancy(const Gpu& gpu, int registers, size_t shared, int threads) {
  cudaOccDeviceProp device{};
  device.computeMajor = gpu.major;
  device.computeMinor = gpu.minor;
  device.maxThreadsPerBlock = 1024;
  device.maxThreadsPerMultiprocessor = gpu.threads;
  device.regsPerBlock = device.regsPerMultiprocessor = 65536;
  device.warpSize = 32;
  device.sharedMemPerBlock = 48 * kKiB;
  device.sharedMemPerMultiprocessor = gpu.shared;
  device.numSms = gpu.multiprocessors;
  device.sharedMemPerBlockOptin = gpu.shared_of_block;
  device.reservedSharedMemPerBlock = gpu.reserved;
  cudaOccFuncAttributes kernel{};
  kernel.maxThreadsPerBlock = INT_MAX;
  kernel.numRegs = registers;
  kernel.maxDynamicSharedSizeBytes = 48 * kKiB;
  kernel.numBlockBarriers = 1;
  const cudaOccDeviceState state{};
  cudaOccResult result{};
  if (cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &kernel, &state, threads, shared)) return -1;
  return 100 * result.activeBlocksPerMultiprocessor * threads / gpu.threads;
}

}  // namespace

int main() {
  int registers, threads;
  size_t shared;
  while (std::scanf("%d %zu %d", &registers, &shared, &threads) == 3) {
    for (const Gpu& gpu : kGpus) std::printf("%d ", occupancy(gpu, registers, shared, threads));
    std::printf("\n");
  }
}
