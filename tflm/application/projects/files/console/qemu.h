/* In startup.c. */
#ifdef __cplusplus
extern "C"
#endif
void Print(const char *text);

static inline void StartConsole(void) {}
