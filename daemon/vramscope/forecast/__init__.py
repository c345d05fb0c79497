"""What a plan will take, step by step and to the byte, before anything is loaded."""
