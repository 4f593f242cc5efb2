'use strict';
// What cannot wait for the other scripts: the colours that a reader chose, and steps back.
try {
  const chosen = localStorage.getItem('scheme');
  if (chosen) document.documentElement.dataset.scheme = chosen;
} catch (error) { /* storage is disabled: the system's scheme stays */ }

window.shownAddress = location.pathname + location.search;  // which the form and the answer belong to
addEventListener('popstate', () => {  // the address is the state of the page
  if (location.pathname + location.search !== window.shownAddress) location.reload();
});
