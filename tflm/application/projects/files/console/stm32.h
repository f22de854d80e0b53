/* In board.c. */
#ifdef __cplusplus
extern "C" {
#endif
void StartConsole(void);
void Print(const char *text);
void Pause(void);
#ifdef __cplusplus
}
#endif
