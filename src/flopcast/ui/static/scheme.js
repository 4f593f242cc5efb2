'use strict';
// The colours that a reader chose, before anything is drawn.
try {
  const chosen = localStorage.getItem('scheme');
  if (chosen) document.documentElement.dataset.scheme = chosen;
} catch (error) { /* storage is disabled: the system's scheme stays */ }
