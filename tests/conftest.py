"""Two host devices for every test, so that runs over several devices are tested on any machine."""

import jax

jax.config.update("jax_num_cpu_devices", 2)
