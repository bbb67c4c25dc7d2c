"""Programs of this machine: started, limited, watched, and ended with everything they started."""
