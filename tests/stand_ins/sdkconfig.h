// What generated code uses of the settings of ESP-IDF.
#define CONFIG_ESP_CONSOLE_UART_NUM 0
#define CONFIG_ESP_DEFAULT_CPU_FREQ_MHZ 160
#define CONFIG_ESP_MAIN_TASK_STACK_SIZE 8192
