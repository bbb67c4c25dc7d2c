"""Where scripts run: every process that is started here is ended here, and each promise about it was tried first."""
