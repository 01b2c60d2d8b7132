"""How an instruction runs: its operands, what `execute` sees, registers, loops on the device, meetings."""
