// The page that takes a file: what is chosen or dropped becomes the text of the form.

export const MOST_BYTES = 262144;

export function upload(told) {
  const form = document.getElementById('upload'), file = document.getElementById('file');
  const name = document.getElementById('name'), text = document.getElementById('text');

  async function take(chosen) {
    if (!chosen) return;
    name.value = chosen.name;
    text.value = await chosen.slice(0, MOST_BYTES).text();
    told.textContent = chosen.size > MOST_BYTES ? 'Only the first 256 KiB of the file were read.' : '';
  }
  file.addEventListener('change', () => take(file.files[0]));
  form.addEventListener('dragover', (event) => event.preventDefault());
  form.addEventListener('drop', (event) => {
    event.preventDefault();
    take(event.dataTransfer.files[0]);
  });
  form.addEventListener('submit', (event) => {
    const size = new URLSearchParams([['name', name.value], ['text', text.value]]).toString().length;
    if (size < MOST_BYTES) return;
    event.preventDefault();
    told.textContent = 'The file is larger than 256 KiB.';
  });
}
