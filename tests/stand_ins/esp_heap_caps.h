// What generated code uses of ESP-IDF.
#include <stddef.h>
#include <stdint.h>

#define MALLOC_CAP_8BIT (1 << 2)
#define MALLOC_CAP_SPIRAM (1 << 10)
#define MALLOC_CAP_INTERNAL (1 << 11)
#ifdef __cplusplus
extern "C" {
#endif
void* heap_caps_aligned_alloc(size_t alignment, size_t size, uint32_t caps);
size_t heap_caps_get_free_size(uint32_t caps);
#ifdef __cplusplus
}
#endif
